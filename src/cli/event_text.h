// A row of the journal for people: one line for the event and one for each decision.
#pragma once

#include <map>
#include <string>

#include "base/ids.h"
#include "codec/event_json.h"

namespace tranche::cli {

// The journal counts GPUs by ids of its own, from 1; `ls`, `gpus` and nvidia-smi by index, from 0. What the
// rows read so far say of each keeps the two apart.
class GpuNames {
 public:
  // Takes what the row says of GPUs.
  void learn(const JournalRow& row);
  // "GPU 0 (GPU-5c2a91f0)", or "GPU id 1" of one that no row has named.
  std::string name_of(GpuId gpu) const;

 private:
  std::map<GpuId, std::string> names_;
};

// Learns from the row first.
std::string event_text(const JournalRow& row, GpuNames& gpus);

}  // namespace tranche::cli
