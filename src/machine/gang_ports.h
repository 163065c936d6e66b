// The TCP ports that the tasks of a gang meet on: one for the whole gang (MASTER_PORT), then one for each
// task (TF_CONFIG), side by side.
//
// The ports follow from the job's id and its attempt alone, so that every task of the gang, and a daemon that
// was restarted in between, come to the same ones without keeping anything. Whether they are free is asked
// when the gang starts: neither another running gang's nor anybody else's. If they are not, the attempt is
// given up before anything ran, and the next one has others.
//
// They lie below the ports that Linux gives to outgoing connections (32768 and up, ip(7)), so that no stray
// connection takes one between the look and the gang's own bind().
#pragma once

#include <cstdint>
#include <string_view>

#include "machine/job_table.h"

namespace tranche::machine {

inline constexpr uint32_t kGangPortsFirst = 20'000;
inline constexpr uint32_t kGangPortsEnd = 30'000;
// A larger gang gets a port for the whole of it, and none for each task.
inline constexpr uint32_t kGangTasksWithPorts = 1'000;

struct GangPorts {
  uint16_t first = 0;  // of the gang; the task of rank r has first + 1 + r
  uint16_t count = 0;  // 0: not a gang, no ports
  bool overlaps(const GangPorts& other) const {
    return first < other.first + other.count && other.first < first + count;
  }
};

// All tasks are on this machine, and the loopback interface is there on every one.
inline constexpr std::string_view kGangAddress = "127.0.0.1";

// Of a job of `tasks` tasks in its `attempt`.
GangPorts gang_ports(JobId job, uint32_t attempt, uint32_t tasks);
// Of the job as it runs. An elastic one keeps its ports whatever comes and goes: they are those of as many
// tasks as it may have, in the attempt that it began with.
GangPorts gang_ports_of(const JobRecord& job);

// Whether another job that has started and not ended was given one of these.
bool are_taken_by_another_gang(const GangPorts& ports, JobId job, const JobTable& jobs,
                               const std::vector<JobId>& live);

// Whether a socket could listen on each of them now.
bool can_listen(uint16_t first, uint16_t count);

}  // namespace tranche::machine
