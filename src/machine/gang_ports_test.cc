#include "machine/gang_ports.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "linux/unique_fd.h"

namespace tranche::machine {
namespace {

TEST(GangPorts, AJobOfOneTaskHasNone) {
  EXPECT_EQ(gang_ports(JobId(7), 1, 1).count, 0);
  EXPECT_EQ(gang_ports(JobId(7), 1, 0).count, 0) << "it waits";
}

TEST(GangPorts, LieInTheRangeWhateverTheJob) {
  for (const uint64_t job :
       {uint64_t{1}, uint64_t{9'999}, uint64_t{10'000}, (uint64_t{1} << 40) - 1, uint64_t{1} << 62}) {
    for (const uint32_t tasks : {2U, 16U, 1'000U, 1'001U, 1'000'000U}) {
      for (const uint32_t attempt : {1U, 2U, 4'000'000'000U}) {
        const GangPorts ports = gang_ports(JobId(job), attempt, tasks);
        EXPECT_GE(ports.first, kGangPortsFirst) << job << " " << tasks << " " << attempt;
        EXPECT_LE(uint32_t{ports.first} + ports.count, kGangPortsEnd)
            << job << " " << tasks << " " << attempt;
        EXPECT_EQ(ports.count, tasks > kGangTasksWithPorts ? 1 : tasks + 1);
      }
    }
  }
}

TEST(GangPorts, NeighboursAndAttemptsDoNotMeet) {
  for (uint64_t job = 1; job < 500; ++job) {
    const GangPorts ports = gang_ports(JobId(job), 1, 16);
    EXPECT_FALSE(ports.overlaps(gang_ports(JobId(job + 1), 1, 16))) << job;
    EXPECT_FALSE(ports.overlaps(gang_ports(JobId(job), 2, 16))) << job;
    EXPECT_FALSE(gang_ports(JobId(job), 2, 16).overlaps(gang_ports(JobId(job), 3, 16))) << job;
  }
}

TEST(GangPorts, APortWithAListenerIsNotFree) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_FALSE(can_listen(ntohs(address.sin_port), 1));
}

}  // namespace
}  // namespace tranche::machine
