// An elastic job on the whole daemon: it is given and taken tasks while it runs, and what its tasks read of
// one another is right and durable at every moment.
#include <unistd.h>

#include "linux/files.h"
#include "machine/daemon_fixture.h"
#include "machine/gang_ports.h"
#include "machine/members.h"
#include "machine/verify_journal.h"

namespace tranche::machine {
namespace {

class ElasticTest : public DaemonFixture {
 protected:
  ElasticTest() : DaemonFixture(SimulatedHost::board("h100-80", 4)) {
    config_.run_dir = config_.state_dir;
    config_.policy.minimum_runtime = Duration{};
    config_.policy.usage_half_life = Duration{};
    for (const char* path : {"a", "b"}) {
      QueuePolicy queue;
      queue.path = path;
      queue.quota = MilliGpu(path[0] == 'b' ? 2'000 : 1'000);
      config_.policy.queues.push_back(queue);
    }
    behaviour_.run_time = 2 * kHour;
    start_daemon();
  }

  static JobSpec spec_of(const std::string& queue, uint32_t uid) {
    JobSpec spec;
    spec.owner = {uid, uid, "user" + std::to_string(uid)};
    spec.queue = queue + "/user" + std::to_string(uid);
    spec.task.gpu.count = 1;
    spec.grace = 5 * kSecond;
    return spec;
  }
  JobId submit_elastic() {
    JobSpec spec = spec_of("a", 2001);
    spec.tasks_max = 4;
    spec.elastic = true;
    return submit(std::move(spec));
  }
  JobId submit_other(uint32_t gpus) {
    JobSpec spec = spec_of("b", 2002);
    spec.task.gpu.count = gpus;
    return submit(std::move(spec));
  }
  std::string file(JobId job) { return read_file(members_file(config_.run_dir, job), 4096).value_or(""); }
  std::string value(JobId job, const std::string& name) {
    const std::string text = "\n" + file(job);
    const size_t at = text.find("\n" + name + "=");
    if (at == std::string::npos) return "<unset>";
    const size_t begin = at + name.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  uint64_t generation(JobId job) { return std::stoull(value(job, "GENERATION")); }
  const JobRecord& record(JobId job) { return *engine().jobs().find(job); }
};

TEST_F(ElasticTest, GrowsShrinksAndGrowsAgainAndNothingIsRestarted) {
  const JobId elastic = submit_elastic();
  pass(kSecond);
  EXPECT_EQ(value(elastic, "RANKS"), "0,1,2,3");
  EXPECT_EQ(value(elastic, "WORLD_SIZE"), "4");
  EXPECT_EQ(value(elastic, "LEAVING"), "");
  const std::string port = value(elastic, "MASTER_PORT");
  const uint64_t first = generation(elastic);

  behaviour_.run_time = 20 * kSecond;
  const JobId other = submit_other(2);
  pass(kMillisecond * 10);
  EXPECT_EQ(value(elastic, "RANKS"), "0,1");
  pass(kSecond);
  EXPECT_EQ(value(elastic, "LEAVING"), "") << "they have gone";
  EXPECT_GT(generation(elastic), first);
  EXPECT_EQ(record(other).state, JobState::running);
  EXPECT_EQ(record(elastic).state, JobState::running);
  const auto& why = record(elastic).history.back();
  EXPECT_NE(
      why.reason.find("2 of 1 to 4 tasks: tasks 2 and 3 were reclaimed by a queue that is owed its share"),
      std::string::npos)
      << why.reason;
  EXPECT_NE(why.reason.find("job " + std::to_string(other.value())), std::string::npos) << why.reason;

  behaviour_.run_time = 2 * kHour;
  pass(kMinute);
  EXPECT_EQ(record(other).state, JobState::completed);
  EXPECT_EQ(value(elastic, "RANKS"), "0,1,2,3");
  EXPECT_EQ(value(elastic, "MASTER_PORT"), port) << "they meet where they met";
  const std::vector<TaskEntry>& tasks = record(elastic).tasks;
  ASSERT_EQ(tasks.size(), 4u);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(tasks[rank].key.rank, rank);
    EXPECT_EQ(tasks[rank].key.attempt == 1, rank < 2) << "a task that stays is not started again";
  }
  for (const auto& [task, times] : tasks_.executions()) EXPECT_EQ(times, 1);
}

// The file names a task as leaving, and not among those that are there, before it hears of it.
TEST_F(ElasticTest, OthersAreToldBeforeTheTaskThatGoes) {
  behaviour_.ignores_term = true;
  const JobId elastic = submit_elastic();
  pass(kSecond);
  const JobId other = submit_other(1);
  pass(kMillisecond * 10);
  ASSERT_EQ(tasks_.running().size(), 4u) << "it has its grace";
  EXPECT_EQ(value(elastic, "RANKS"), "0,1,2");
  EXPECT_EQ(value(elastic, "LEAVING"), "3");
  EXPECT_EQ(record(other).state, JobState::pending);
}

TEST_F(ElasticTest, ARestartOfTheDaemonIsNoChangeForItsTasks) {
  const JobId elastic = submit_elastic();
  pass(kSecond);
  const std::string before = file(elastic);
  ASSERT_NE(before, "");
  stop_daemon();
  start_daemon();
  pass(kSecond);
  EXPECT_EQ(file(elastic), before);
  // What was lost, and what is wrong, is written anew with a higher generation.
  const uint64_t generation_before = generation(elastic);
  ASSERT_TRUE(write_file_atomically(members_file(config_.run_dir, elastic), "RANKS=7\n", 0644));
  ASSERT_TRUE(write_file_atomically(members_file(config_.run_dir, JobId(77)), "RANKS=7\n", 0644));
  behaviour_.run_time = kSecond;
  stop_daemon();
  start_daemon();
  EXPECT_EQ(value(elastic, "RANKS"), "0,1,2,3");
  EXPECT_GE(generation(elastic), generation_before);
  EXPECT_EQ(file(JobId(77)), "") << "of a job that nobody knows";
}

TEST_F(ElasticTest, TheFileGoesWithTheJob) {
  const JobId elastic = submit_elastic();
  pass(kSecond);
  ASSERT_NE(file(elastic), "");
  engine().record(JobCancelled{elastic, "user2001"});
  pass(10 * kSecond);
  EXPECT_EQ(record(elastic).state, JobState::cancelled);
  EXPECT_NE(::access(members_file(config_.run_dir, elastic).c_str(), F_OK), 0);
}

// The limit is the job's: a task that joins after 50 minutes of an hour has ten left.
TEST_F(ElasticTest, WhoJoinsLateHasWhatIsLeftOfTheTimeLimit) {
  const JobId other = submit_other(3);
  const JobId elastic = submit_elastic();
  pass(50 * kMinute);
  ASSERT_EQ(record(elastic).tasks.size(), 1u);
  engine().record(JobCancelled{other, "user2002"});
  pass(kMinute);
  ASSERT_EQ(record(elastic).tasks.size(), 4u);
  pass(9 * kMinute + 30 * kSecond);
  EXPECT_TRUE(is_final(record(elastic).state)) << to_string(record(elastic).state);
  EXPECT_EQ(record(elastic).state, JobState::timed_out);
}

TEST_F(ElasticTest, TheJournalRecomputesWithWhatCameAndWent) {
  const JobId elastic = submit_elastic();
  pass(kSecond);
  behaviour_.run_time = 5 * kSecond;
  submit_other(3);
  pass(kMinute);
  engine().record(JobCancelled{elastic, "user2001"});
  pass(kMinute);
  const uint64_t hash = engine().scheduler().state_hash();
  stop_daemon();
  const auto verdict = verify_journal(config_.state_dir);
  ASSERT_TRUE(verdict) << verdict.error().message();
  EXPECT_TRUE(verdict->holds());
  EXPECT_EQ(verdict->state_hash_restored, hash);
  start_daemon();
}

TEST(MembersText, IsWhatTheContractSays) {
  JobSpec spec;
  spec.tasks_min = 2;
  spec.tasks_max = 8;
  EXPECT_EQ(members_text(spec, 20'017, Membership{{{0, false}, {1, false}, {3, true}, {5, false}}}),
            "FORMAT=1\nWORLD_SIZE=3\nRANKS=0,1,5\nLEAVING=3\nTASKS_MIN=2\nTASKS_MAX=8\n"
            "MASTER_ADDR=127.0.0.1\nMASTER_PORT=20017\n");
}

}  // namespace
}  // namespace tranche::machine
