#include "gpu/sampler_protocol.h"

#include <gtest/gtest.h>

#include <vector>

#include "gpu/sampler_values.h"

namespace tranche {
namespace {

std::vector<std::byte> bytes_of(const sampler::Gpu& message) {
  std::vector<std::byte> bytes(sizeof message);
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

TEST(SamplerProtocol, DecodesOnlyWholeMessagesOfItsVersion) {
  sampler::Gpu message;
  message.header = {
      .size = sizeof message, .version = sampler::kProtocolVersion, .kind = sampler::Kind::gpu, .id = 0};
  message.index = 3;
  const std::vector<std::byte> good = bytes_of(message);
  ASSERT_TRUE(sampler::decode<sampler::Gpu>(good).has_value());
  EXPECT_EQ(sampler::decode<sampler::Gpu>(good)->index, 3u);
  EXPECT_FALSE(sampler::decode<sampler::Gpu>(std::span(good).first(good.size() - 1)).has_value());
  EXPECT_FALSE(sampler::decode<sampler::Gpu>({}).has_value());
  message.header.version = sampler::kProtocolVersion + 1;
  EXPECT_FALSE(sampler::decode<sampler::Gpu>(bytes_of(message)).has_value());
  message.header.version = sampler::kProtocolVersion;
  message.header.size = 40;
  EXPECT_FALSE(sampler::decode<sampler::Gpu>(bytes_of(message)).has_value());
}

TEST(SamplerProtocol, TextsNeedNoEndAndAreCleaned) {
  sampler::UserName message;
  std::memset(message.name, 'x', sizeof message.name);
  message.name[0] = '\x1b';
  EXPECT_EQ(sampler::field_text(message.name), "?" + std::string(63, 'x'));
  sampler::set_field(message.name, std::string(500, 'y'));
  EXPECT_EQ(sampler::field_text(message.name), std::string(63, 'y'));
  sampler::set_field(message.name, "ada");
  EXPECT_EQ(sampler::field_text(message.name), "ada");
}

TEST(SamplerValues, NonsenseIsCut) {
  sampler::Gpu message;
  message.memory_total = UINT64_MAX;
  message.memory_reserve = UINT64_MAX;
  message.link_count = UINT32_MAX;
  message.links[0] = {.peer = 1, .kind = 77};
  message.numa_node = -5;
  message.known = UINT32_MAX;
  const DiscoveredGpu gpu = discovered_gpu(message);
  EXPECT_EQ(gpu.memory_usable, MiB(0));
  EXPECT_EQ(gpu.links.size(), size_t{sampler::kGpusMax});
  EXPECT_EQ(gpu.links[0].kind, LinkKind::system);
  EXPECT_EQ(gpu.numa_node, -1);
  EXPECT_FALSE(gpu.type.empty());
}

TEST(SamplerValues, LinksJoinOnlyGpusThatAreThere) {
  std::vector<DiscoveredGpu> gpus(2);
  gpus[0].index = 0;
  gpus[1].index = 2;
  gpus[0].links = {{1, LinkKind::nvlink}, {2, LinkKind::nvlink}, {0, LinkKind::nvlink}};
  complete_links(gpus);
  EXPECT_EQ(gpus[0].links, (std::vector<PeerLink>{{2, LinkKind::nvlink}}));
  EXPECT_EQ(gpus[1].links, (std::vector<PeerLink>{{0, LinkKind::system}}));
}

TEST(SamplerValues, MemoryRoundsTheSafeWay) {
  EXPECT_EQ(mib_down(2 * 1024 * 1024 - 1), MiB(1));
  EXPECT_EQ(mib_up(1024 * 1024 + 1), MiB(2));
  EXPECT_EQ(mib_up(0), MiB(0));
}

}  // namespace
}  // namespace tranche
