#include "machine/gang_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "linux/unique_fd.h"

namespace tranche::machine {
namespace {

// Gangs that follow each other lie this far apart, so that those of up to sixteen tasks do not touch; another
// attempt goes somewhere else altogether.
constexpr uint64_t kStepOfJob = 17;
constexpr uint64_t kStepOfAttempt = 3'911;

bool can_listen_on(uint16_t port) {
  // One socket for both families, as most programs listen; without IPv6, the other alone.
  const UniqueFd both(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd old(both.is_open() ? -1 : ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int socket = both.is_open() ? both.get() : old.get();
  if (socket < 0) return true;  // no descriptor left: nothing is known, and nobody is to suffer for it
  const int on = 1;
  const int off = 0;
  // Connections of the last gang that are only waiting to be forgotten are no hindrance.
  (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (both.is_open()) {
    (void)::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
           errno != EADDRINUSE;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno != EADDRINUSE;
}

}  // namespace

GangPorts gang_ports(JobId job, uint32_t attempt, uint32_t tasks) {
  if (tasks < 2) return {};
  const uint32_t count = tasks > kGangTasksWithPorts ? 1 : 1 + tasks;
  const uint64_t room = kGangPortsEnd - kGangPortsFirst - count + 1;
  const uint64_t place = (job.value() % room * kStepOfJob + uint64_t{attempt} * kStepOfAttempt) % room;
  return {static_cast<uint16_t>(kGangPortsFirst + place), static_cast<uint16_t>(count)};
}

GangPorts gang_ports_of(const JobRecord& job) {
  return gang_ports(job.id, job.first_attempt,
                    job.spec->elastic ? job.spec->tasks_max : static_cast<uint32_t>(job.tasks.size()));
}

bool are_taken_by_another_gang(const GangPorts& ports, JobId job, const JobTable& jobs,
                               const std::vector<JobId>& live) {
  return std::any_of(live.begin(), live.end(), [&](JobId id) {
    const JobRecord* other = jobs.find(id);
    if (id == job || other == nullptr || other->state == JobState::pending ||
        other->state == JobState::held) {
      return false;
    }
    return gang_ports_of(*other).overlaps(ports);
  });
}

bool can_listen(uint16_t first, uint16_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!can_listen_on(static_cast<uint16_t>(first + i))) return false;
  }
  return true;
}

}  // namespace tranche::machine
