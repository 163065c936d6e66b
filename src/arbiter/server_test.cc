// The server over real sockets and real processes; the test is its root, its shepherd and its jobs.
#include "arbiter/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/random.h"

namespace tranche::arbiter {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

// A listening socket under an abstract name that the kernel chooses.
struct Listener {
  Listener() : file(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    address.sun_family = AF_UNIX;
    EXPECT_EQ(::bind(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family), 0);
    EXPECT_EQ(::listen(file.get(), 16), 0);
    size = sizeof address;
    ::getsockname(file.get(), reinterpret_cast<sockaddr*>(&address), &size);
  }
  OwnedFile connect() const {
    OwnedFile socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    return socket;
  }
  OwnedFile file;
  sockaddr_un address{};
  socklen_t size = 0;
};

OwnedFile duplicate(const OwnedFile& file) { return OwnedFile(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3)); }

class ArbiterServer : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root registers tasks";
    page_ = OwnedFile(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(page_.get(), TRANCHE_GUARD_PAGE_BYTES), 0);
    ASSERT_EQ(::fcntl(page_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    restart();
  }

  void restart() {
    server_.reset();
    control_ = std::make_unique<Listener>();
    server_ = std::make_unique<Server>(duplicate(control_->file), 0);
    shepherd_ = control_->connect();
  }

  void serve(int turns = 8) {
    for (int i = 0; i < turns; ++i) server_->run_once(0);
  }

  int32_t reply() {
    serve();
    wire::ArbiterReply answer{};
    return ::recv(shepherd_.get(), &answer, sizeof answer, MSG_DONTWAIT) > 0 ? answer.status : -1;
  }

  int32_t register_task(uint64_t limit, uint64_t job = 5, uint64_t guarantee = 0,
                        const Listener* at = nullptr, const OwnedFile* leases = nullptr) {
    wire::RegisterTask request{};
    request.header = {sizeof request, 1, static_cast<uint16_t>(wire::ArbiterKind::register_task), 1};
    request.key = {job, 0, 1};
    request.guarantee_bytes[0] = guarantee;
    request.uid = 2001;
    request.gpu_count = 1;
    request.gpus[0].uuid[0] = 9;
    request.gpus[0].limit_bytes = limit;
    const int files[2] = {(at == nullptr ? task_ : *at).file.get(),
                          (leases == nullptr ? page_ : *leases).get()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
    iovec part{&request, sizeof request};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof files);
    std::memcpy(CMSG_DATA(header), files, sizeof files);
    EXPECT_GT(::sendmsg(shepherd_.get(), &message, 0), 0);
    return reply();
  }

  template <class Question, class Answer>
  bool ask(const OwnedFile& guard, Question question, uint16_t kind, Answer& answer) {
    question.header = {sizeof question, TRANCHE_GUARD_VERSION, kind, 77};
    if (::send(guard.get(), &question, sizeof question, MSG_NOSIGNAL) < 0) return false;
    serve();
    answer = Answer{};
    return ::recv(guard.get(), &answer, sizeof answer, MSG_DONTWAIT) > 0 && answer.header.id == 77;
  }

  tranche_guard_welcome hello(const OwnedFile& guard, uint32_t slot = 0, uint64_t image = 4) {
    tranche_guard_hello question{};
    question.slot = slot;
    question.image = image;
    tranche_guard_welcome welcome{};
    EXPECT_TRUE(ask(guard, question, TRANCHE_GUARD_HELLO, welcome));
    return welcome;
  }

  int32_t lease(const OwnedFile& guard, uint64_t bytes) {
    tranche_guard_lease question{};
    question.need_bytes = bytes;
    tranche_guard_answer answer{};
    return ask(guard, question, TRANCHE_GUARD_LEASE, answer) ? answer.status : -1;
  }

  // As a guard does with what it was granted.
  void use(uint32_t slot, uint64_t bytes) {
    auto page = LeasePage::map(page_.get());
    page->slot(slot - 1).lease[0] += bytes / TRANCHE_GUARD_UNIT;
  }

  uint64_t charged(const OwnedFile& guard) {
    tranche_guard_answer answer{};
    EXPECT_TRUE(ask(guard, tranche_guard_gpu_request{}, TRANCHE_GUARD_USAGE, answer));
    return answer.charged_bytes;
  }

  Listener task_;
  OwnedFile page_;
  std::unique_ptr<Listener> control_;
  std::unique_ptr<Server> server_;
  OwnedFile shepherd_;
};

TEST_F(ArbiterServer, GrantsToWhoComesThroughTheTasksSocket) {
  ASSERT_EQ(register_task(100 * kMebibyte), 0);
  const OwnedFile guard = task_.connect();
  const tranche_guard_welcome welcome = hello(guard);
  EXPECT_EQ(welcome.pid, ::getpid());
  EXPECT_EQ(welcome.gpu_count, 1U);
  EXPECT_EQ(welcome.gpus[0].limit_bytes, 100 * kMebibyte);
  EXPECT_EQ(lease(guard, 100 * kMebibyte), 0);
  use(welcome.slot, 100 * kMebibyte);
  EXPECT_EQ(lease(guard, TRANCHE_GUARD_UNIT), ENOMEM);
  EXPECT_EQ(charged(guard), 100 * kMebibyte);
}

// More tasks than a socket holds rows of: read page by page, each once, in order.
TEST_F(ArbiterServer, TellsItsWholeLedgerPageByPage) {
  constexpr uint64_t kTasks = 700;
  for (uint64_t job = 1; job <= kTasks; ++job) ASSERT_EQ(register_task(kMebibyte, job), 0);
  wire::UsageRequest question{};
  std::vector<uint64_t> jobs;
  int pages = 0;
  for (uint32_t entries = wire::kUsagePage; entries == wire::kUsagePage; ++pages) {
    question.header = {sizeof question, 1, static_cast<uint16_t>(wire::ArbiterKind::usage), 9};
    ASSERT_GT(::send(shepherd_.get(), &question, sizeof question, 0), 0);
    serve();
    wire::UsageEntry entry{};
    ssize_t size = 0;
    while ((size = ::recv(shepherd_.get(), &entry, sizeof entry, MSG_DONTWAIT)) ==
           static_cast<ssize_t>(sizeof entry)) {
      jobs.push_back(entry.key.job);
      question.after = entry.key;
      question.after_gpu = entry.gpu;
    }
    ASSERT_EQ(size, static_cast<ssize_t>(sizeof(wire::ArbiterReply)));
    wire::ArbiterReply answer{};
    std::memcpy(&answer, &entry, sizeof answer);
    entries = answer.entries;
    ASSERT_LT(pages, 20);
  }
  ASSERT_EQ(jobs.size(), kTasks);
  EXPECT_TRUE(std::is_sorted(jobs.begin(), jobs.end()));
  EXPECT_EQ(jobs.back(), kTasks);
}

// A newcomer's promise is waited for in the guard, never refused, while another task borrows it.
TEST_F(ArbiterServer, LendsOnWhatTheBoardHasAndTellsTheNewcomerToWait) {
  wire::SetBoard board{};
  board.header = {sizeof board, 1, static_cast<uint16_t>(wire::ArbiterKind::set_board), 3};
  board.uuid[0] = 9;
  board.usable_bytes = 100 * kMebibyte;
  ASSERT_GT(::send(shepherd_.get(), &board, sizeof board, 0), 0);
  ASSERT_EQ(reply(), 0);
  ASSERT_EQ(register_task(100 * kMebibyte, 5, 20 * kMebibyte), 0);
  const OwnedFile borrower = task_.connect();
  const tranche_guard_welcome welcome = hello(borrower);
  ASSERT_EQ(lease(borrower, 90 * kMebibyte), 0);
  use(welcome.slot, 90 * kMebibyte);
  Listener other;
  const OwnedFile other_page(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(other_page.get(), TRANCHE_GUARD_PAGE_BYTES), 0);
  ASSERT_EQ(::fcntl(other_page.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  ASSERT_EQ(register_task(60 * kMebibyte, 6, 0, &other, &other_page), 0);
  const OwnedFile owner = other.connect();
  ASSERT_EQ(hello(owner).gpus[0].limit_bytes, 60 * kMebibyte);
  EXPECT_EQ(lease(owner, 10 * kMebibyte), 0);
  EXPECT_EQ(lease(owner, 60 * kMebibyte), EAGAIN);
  EXPECT_EQ(lease(borrower, 20 * kMebibyte), ENOMEM);
  EXPECT_EQ(lease(owner, 61 * kMebibyte), ENOMEM) << "beyond its own limit there is nothing to wait for";
  auto page = LeasePage::map(page_.get());
  page->slot(welcome.slot - 1).lease[0] -= 60 * kMebibyte / TRANCHE_GUARD_UNIT;
  EXPECT_EQ(lease(owner, 60 * kMebibyte), 0);
}

TEST_F(ArbiterServer, GivesBackWhatAKilledProcessHeld) {
  ASSERT_EQ(register_task(100 * kMebibyte), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const OwnedFile guard = task_.connect();
    tranche_guard_hello question{};
    question.header = {sizeof question, 1, TRANCHE_GUARD_HELLO, 77};
    question.image = 4;
    if (::send(guard.get(), &question, sizeof question, 0) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  const OwnedFile viewer = task_.connect();
  auto page = LeasePage::map(page_.get());
  while (__atomic_load_n(&page->slot(0).pid, __ATOMIC_ACQUIRE) != child) server_->run_once(10);
  // What it used is in its slot; it was granted that much.
  EXPECT_EQ(hello(viewer).status, 0);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  serve(16);
  EXPECT_EQ(page->slot(0).pid, 0);
  EXPECT_EQ(lease(viewer, 100 * kMebibyte), 0);
}

TEST_F(ArbiterServer, TakesUpATaskAfterItsRestart) {
  ASSERT_EQ(register_task(100 * kMebibyte), 0);
  OwnedFile guard = task_.connect();
  const uint32_t slot = hello(guard).slot;
  ASSERT_EQ(lease(guard, 60 * kMebibyte), 0);
  use(slot, 60 * kMebibyte);
  restart();
  ASSERT_EQ(register_task(100 * kMebibyte), 0);
  guard = task_.connect();
  EXPECT_EQ(hello(guard, slot).slot, slot);
  EXPECT_EQ(charged(guard), 60 * kMebibyte);
  EXPECT_EQ(lease(guard, 41 * kMebibyte), ENOMEM);
  EXPECT_EQ(lease(guard, 40 * kMebibyte), 0);
}

TEST_F(ArbiterServer, ChangesALimitWhileTheTaskRuns) {
  ASSERT_EQ(register_task(100 * kMebibyte), 0);
  const OwnedFile guard = task_.connect();
  hello(guard);
  wire::SetMemoryLimit change{};
  change.header = {sizeof change, 1, static_cast<uint16_t>(wire::ArbiterKind::set_limit), 2};
  change.key = {5, 0, 1};
  change.uuid[0] = 9;
  change.limit_bytes = 10 * kMebibyte;
  ASSERT_GT(::send(shepherd_.get(), &change, sizeof change, 0), 0);
  EXPECT_EQ(reply(), 0);
  EXPECT_EQ(lease(guard, 11 * kMebibyte), ENOMEM);
  change.uuid[0] = 8;
  ASSERT_GT(::send(shepherd_.get(), &change, sizeof change, 0), 0);
  EXPECT_EQ(reply(), ENODEV);
}

// Found by a hostile job (tests/guard/arbiter_fuzz.cc): two slots of one image, and then a newer image.
TEST_F(ArbiterServer, AConnectionWhoseSlotIsGoneGetsNothing) {
  ASSERT_EQ(register_task(100 * kMebibyte), 0);
  const OwnedFile first = task_.connect();
  const OwnedFile second = task_.connect();
  hello(first);
  ASSERT_NE(hello(second).slot, 1U);
  const OwnedFile newer = task_.connect();
  hello(newer, 0, 5);
  EXPECT_EQ(lease(second, kMebibyte), -1) << "its connection has ended";
  EXPECT_EQ(lease(newer, kMebibyte), 0);
}

TEST_F(ArbiterServer, RefusesAPageThatItsTaskCouldShrink) {
  page_ = OwnedFile(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(page_.get(), TRANCHE_GUARD_PAGE_BYTES), 0);
  EXPECT_EQ(register_task(100 * kMebibyte), EINVAL);
}

// A job that does not read, sends what is no message, or floods: it loses its connection, and nobody else
// anything.
TEST_F(ArbiterServer, SurvivesWhateverAJobSends) {
  ASSERT_EQ(register_task(100 * kMebibyte), 0);
  const OwnedFile honest = task_.connect();
  hello(honest);
  const char* wanted = std::getenv("TRANCHE_SEED");
  const uint64_t seed = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 11;
  const int rounds = std::getenv("TRANCHE_LONG") != nullptr ? 200'000 : 3000;
  std::printf("%d packets, seed %llu\n", rounds, static_cast<unsigned long long>(seed));
  Random random(seed);
  OwnedFile hostile = task_.connect();
  for (int i = 0; i < rounds; ++i) {
    char bytes[8192 + 64];
    const size_t size = random.below(4) == 0 ? random.below(sizeof bytes) : random.below(80);
    for (size_t at = 0; at < size; ++at) bytes[at] = static_cast<char>(random.next());
    if (random.below(3) != 0 && size >= sizeof(tranche_guard_header)) {
      const tranche_guard_header header{static_cast<uint32_t>(size), 1,
                                        static_cast<uint16_t>(random.below(10)), 1};
      std::memcpy(bytes, &header, sizeof header);
    }
    if (::send(hostile.get(), bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      hostile = task_.connect();
    }
    serve(3);
    if (i % 200 == 0) {
      ASSERT_EQ(lease(honest, kMebibyte), 0) << "packet " << i;
    }
  }
  EXPECT_EQ(lease(honest, kMebibyte), 0);
}

}  // namespace
}  // namespace tranche::arbiter
