#include "cli/event_text.h"

#include <gtest/gtest.h>

#include "base/quantity_text.h"

namespace tranche::cli {
namespace {

constexpr std::string_view kTime = "2026-11-30T11:29:47.000000000Z ";

JournalRow row(EventPayload payload, std::vector<Decision> decisions = {}) {
  JournalRow row;
  row.event.seq = EventSeq(5);
  row.event.time = *parse_time("2026-11-30T11:29:47Z");
  row.event.payload = std::move(payload);
  row.decisions = std::move(decisions);
  return row;
}

GpuAdded gpu_added(uint32_t id, uint32_t index, std::string uuid) {
  GpuAdded added;
  added.gpu.id = GpuId(id);
  added.gpu.index = index;
  added.gpu.uuid = std::move(uuid);
  added.gpu.type = "h100-80";
  added.gpu.memory_usable = MiB(81920);
  return added;
}

Start start_on(uint32_t gpu) {
  Start start;
  start.task.job = JobId(7);
  start.task.attempt = 1;
  start.slices.emplace_back();
  start.slices.back().gpu = GpuId(gpu);
  return start;
}

TEST(EventText, NamesGpusAsEverythingElseDoes) {
  GpuNames gpus;
  EXPECT_EQ(
      event_text(row(gpu_added(1, 0, "GPU-5c2a91f0-1111-2222-3333-444455556666")), gpus),
      std::string(kTime) + "5 gpu_added GPU 0 (id 1) h100-80 GPU-5c2a91f0-1111-2222-3333-444455556666 80G\n");
  event_text(row(gpu_added(2, 1, "GPU-77777777-1111-2222-3333-444455556666")), gpus);
  EXPECT_EQ(event_text(row(Tick(), {start_on(2)}), gpus),
            std::string(kTime) + "5 tick\n    -> start job 7, GPU 1 (GPU-77777777)\n");
  HealthChanged lost;
  lost.gpu = GpuId(1);
  lost.health = Health::lost;
  lost.reason = "XID 79";
  EXPECT_EQ(event_text(row(lost), gpus),
            std::string(kTime) + "5 health_changed GPU 0 (GPU-5c2a91f0) lost XID 79\n");
}

TEST(EventText, AGpuThatNoRowHasNamedIsAnId) {
  GpuNames gpus;
  EXPECT_EQ(event_text(row(Tick(), {start_on(3)}), gpus),
            std::string(kTime) + "5 tick\n    -> start job 7, GPU id 3\n");
}

}  // namespace
}  // namespace tranche::cli
