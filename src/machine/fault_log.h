// The errors that the driver has reported of GPUs, XIDs, as the journal tells them: the last few of each GPU.
//
// A projection of events like the job table, so a restart of the daemon forgets none of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/event.h"

namespace tranche::machine {

struct RecordedFault {
  Time time;
  uint32_t xid = 0;
  std::vector<JobId> jobs;  // that held the GPU then
};

struct TablesArchive;

class FaultLog {
 public:
  void apply(const Event& event);
  // Newest last.
  const std::vector<RecordedFault>& of(GpuId gpu) const;
  // Whether the same XID of the same jobs was recorded less than a minute before `now`: a program that makes
  // the same error without end must not fill the journal.
  bool is_repeated(const GpuFaulted& fault, Time now) const;

 private:
  friend struct TablesArchive;  // tables_archive.cc
  std::map<GpuId, std::vector<RecordedFault>> faults_;
};

// "XID 31 on GPU 2, an error of the program: the program used memory that is not its own"
std::string fault_text(uint32_t xid, uint32_t gpu_index);

}  // namespace tranche::machine
