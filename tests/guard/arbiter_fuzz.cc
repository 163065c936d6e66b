// A hostile job against the arbiter: packets of every kind with every field drawn, descriptors passed along,
// answers not read, connections by the hundred, processes that die between, and a lease page that it writes
// all over, also across restarts of the arbiter.
//
//   arbiter_fuzz SECONDS SEED      as root; exit 0 when nothing was found. Built with sanitizers in every
//   preset.
//
// After every round: the neighbour is served, is charged what it took, and can take all of its limit; the
// hostile job was never granted more than its own; the arbiter holds no more descriptors than there are
// connections and processes.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "arbiter/server.h"
#include "base/random.h"

namespace tranche::arbiter {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kLimit = 900 * kMebibyte;
constexpr int kActionsOfRound = 400;
constexpr size_t kMostConnections = 40;

uint64_t g_seed = 0;
uint64_t g_rounds = 0;

[[noreturn]] void fail(const char* what) {
  std::printf("found: %s; seed %llu, round %llu\n", what, static_cast<unsigned long long>(g_seed),
              static_cast<unsigned long long>(g_rounds));
  std::exit(1);
}

void require(bool condition, const char* what) {
  if (!condition) fail(what);
}

// A listening socket under an abstract name that the kernel chooses.
struct Listener {
  Listener() : file(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    address.sun_family = AF_UNIX;
    require(::bind(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family) == 0 &&
                ::listen(file.get(), 512) == 0,
            "no listener");
    size = sizeof address;
    ::getsockname(file.get(), reinterpret_cast<sockaddr*>(&address), &size);
  }
  OwnedFile connect() const {
    OwnedFile socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return OwnedFile();
    return socket;
  }
  OwnedFile file;
  sockaddr_un address{};
  socklen_t size = 0;
};

OwnedFile duplicate(const OwnedFile& file) { return OwnedFile(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3)); }

void send_with_files(int socket, const void* bytes, size_t size, const int* files, size_t count) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = {};
  iovec part{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(header), files, sizeof(int) * count);
  }
  (void)!::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

struct Job {
  explicit Job(uint64_t number)
      : key{number, 0, 1}, page(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    require(::ftruncate(page.get(), TRANCHE_GUARD_PAGE_BYTES) == 0 &&
                ::fcntl(page.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
            "no page");
    void* memory =
        ::mmap(nullptr, TRANCHE_GUARD_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, page.get(), 0);
    require(memory != MAP_FAILED, "no mapping");
    slots = static_cast<tranche_guard_slot*>(memory);
  }
  wire::TaskKey key;
  Listener listener;
  OwnedFile page;
  tranche_guard_slot* slots;
};

class Fuzz {
 public:
  explicit Fuzz(uint64_t seed) : random_(seed) { restart(); }

  void round() {
    for (int i = 0; i < kActionsOfRound; ++i) {
      act();
      serve(static_cast<int>(random_.below(4)));
      ++actions_;
    }
    if (random_.chance(1, 8)) restart();
    check();
  }

  uint64_t actions() const { return actions_; }
  uint64_t restarts() const { return restarts_; }

 private:
  void serve(int turns) {
    for (int i = 0; i < turns; ++i) server_->run_once(0);
  }

  void restart() {
    connections_.clear();
    for (const pid_t child : children_) end(child);
    children_.clear();
    honest_ = OwnedFile();
    shepherd_ = OwnedFile();
    server_.reset();
    control_ = std::make_unique<Listener>();
    server_ = std::make_unique<Server>(duplicate(control_->file), 0);
    shepherd_ = control_->connect();
    for (const Job* job : {&neighbour_, &hostile_}) register_task(*job);
    honest_ = neighbour_.listener.connect();
    tranche_guard_hello question{};
    question.slot = honest_slot_;
    question.image = 4;
    tranche_guard_welcome welcome{};
    require(ask(question, TRANCHE_GUARD_HELLO, welcome), "the neighbour is not welcomed");
    require(honest_slot_ == 0 || honest_slot_ == welcome.slot, "the neighbour lost its slot");
    honest_slot_ = welcome.slot;
    ++restarts_;
  }

  void register_task(const Job& job) {
    wire::RegisterTask request{};
    request.header = {sizeof request, 1, static_cast<uint16_t>(wire::ArbiterKind::register_task), 1};
    request.key = job.key;
    request.uid = 2001;
    request.gpu_count = 2;
    for (uint8_t gpu = 0; gpu < 2; ++gpu) {
      request.gpus[gpu].uuid[0] = gpu;
      request.gpus[gpu].limit_bytes = kLimit;
    }
    const int files[2] = {job.listener.file.get(), job.page.get()};
    send_with_files(shepherd_.get(), &request, sizeof request, files, 2);
    wire::ArbiterReply answer{};
    for (int i = 0; i < 4096 && ::recv(shepherd_.get(), &answer, sizeof answer, MSG_DONTWAIT) <= 0; ++i)
      serve(1);
    require(answer.header.kind == static_cast<uint16_t>(wire::ArbiterKind::reply) && answer.status == 0,
            "a task is not registered");
  }

  template <class Question, class Answer>
  bool ask(Question question, uint16_t kind, Answer& answer) {
    question.header = {sizeof question, TRANCHE_GUARD_VERSION, kind, ++id_};
    if (::send(honest_.get(), &question, sizeof question, MSG_NOSIGNAL) < 0) return false;
    // Whoever floods costs a turn for each packet that waits; more than that would be starving.
    for (int turn = 0; turn < 4096; ++turn) {
      serve(1);
      answer = Answer{};
      if (::recv(honest_.get(), &answer, sizeof answer, MSG_DONTWAIT) > 0) return answer.header.id == id_;
    }
    return false;
  }

  // --- what the hostile job does

  void act() {
    switch (random_.below(12)) {
      case 0:
        if (connections_.size() < kMostConnections) connections_.push_back(hostile_.listener.connect());
        return;
      case 1:
        if (!connections_.empty()) connections_.erase(connections_.begin() + static_cast<long>(pick()));
        return;
      case 2:
        return read_some();
      case 3:
      case 4:
      case 5:
        return write_page();
      case 6:
        return process();
      default:
        if (!connections_.empty()) send_something(connections_[pick()].get());
    }
  }

  size_t pick() { return static_cast<size_t>(random_.below(connections_.size())); }

  uint64_t number() {
    switch (random_.below(6)) {
      case 0:
        return random_.below(4);
      case 1:
        return uint64_t{1} << random_.below(64);
      case 2:
        return UINT64_MAX - random_.below(4);
      case 3:
        return random_.below(kLimit * 2);
      case 4:
        return kLimit / TRANCHE_GUARD_UNIT << 32 | random_.below(kLimit / TRANCHE_GUARD_UNIT * 2);
      default:
        return random_.next();
    }
  }

  void send_something(int socket) {
    char bytes[TRANCHE_GUARD_MAX_MESSAGE + 256];
    size_t size = random_.chance(1, 16) ? random_.below(sizeof bytes) : 16 + random_.below(80);
    for (size_t at = 0; at < sizeof bytes && at < size; at += 8) {
      const uint64_t value = number();
      std::memcpy(bytes + at, &value, std::min<size_t>(8, sizeof bytes - at));
    }
    if (size >= sizeof(tranche_guard_header) && random_.chance(15, 16)) {
      const tranche_guard_header header{static_cast<uint32_t>(random_.chance(3, 4) ? size : number()),
                                        static_cast<uint16_t>(random_.chance(7, 8) ? 1 : number()),
                                        static_cast<uint16_t>(random_.below(10)), number()};
      std::memcpy(bytes, &header, sizeof header);
    }
    // A hello that is one, and of few images: what one process may have and lose is then often met.
    if (random_.chance(1, 6)) {
      tranche_guard_hello hello{};
      hello.header = {sizeof hello, 1, TRANCHE_GUARD_HELLO, number()};
      hello.image = random_.below(3);
      hello.slot = static_cast<uint32_t>(random_.below(4));
      size = sizeof hello;
      std::memcpy(bytes, &hello, sizeof hello);
    }
    // The GPU's place and the like: mostly small, or every message ends its connection.
    if (size >= sizeof(tranche_guard_lease) && random_.chance(3, 4)) {
      const uint32_t gpu = static_cast<uint32_t>(random_.below(3));
      std::memcpy(bytes + offsetof(tranche_guard_lease, gpu), &gpu, sizeof gpu);
    }
    int files[8];
    const size_t count = random_.chance(1, 20) ? random_.below(8) + 1 : 0;
    for (size_t i = 0; i < count; ++i) files[i] = hostile_.page.get();
    send_with_files(socket, bytes, size, files, count);
  }

  void read_some() {
    char bytes[TRANCHE_GUARD_MAX_MESSAGE];
    if (connections_.empty()) return;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{bytes, sizeof bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(connections_[pick()].get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) return;
    const cmsghdr* rights = CMSG_FIRSTHDR(&message);
    int passed = -1;
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
      std::memcpy(&passed, CMSG_DATA(rights), sizeof passed);
      require(::ftruncate(passed, 0) != 0, "a job may cut its page off");
      ::close(passed);
    }
  }

  void write_page() {
    tranche_guard_slot& slot = hostile_.slots[random_.chance(7, 8) ? random_.below(8) : random_.below(1024)];
    switch (random_.below(8)) {
      case 0:
        slot.pid = static_cast<int32_t>(random_.chance(1, 2) ? ::getpid() : static_cast<pid_t>(number()));
        break;
      case 1:
        slot.image = number();
        break;
      case 2:
        slot.start_ticks = random_.chance(1, 2) ? start_ticks_of(::getpid()) : number();
        break;
      case 3:
        slot.pressure = static_cast<uint32_t>(number());
        break;
      default:
        __atomic_store_n(&slot.lease[random_.below(random_.chance(7, 8) ? 2 : TRANCHE_GUARD_MAX_GPUS)],
                         number(), __ATOMIC_RELEASE);
    }
  }

  // A process of the hostile job that connects, says hello and is killed some time later, or is killed.
  void process() {
    if (children_.size() >= 4 || (!children_.empty() && random_.chance(1, 2))) {
      const size_t victim = static_cast<size_t>(random_.below(children_.size()));
      end(children_[victim]);
      children_.erase(children_.begin() + static_cast<long>(victim));
      return;
    }
    if (!random_.chance(1, 16)) return;
    tranche_guard_hello hello{};
    hello.header = {sizeof hello, 1, TRANCHE_GUARD_HELLO, 1};
    hello.slot = static_cast<uint32_t>(number());
    hello.image = number();
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
      // Ends with this program however that ends: whoever waits for its output would wait for the child too.
      if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
      const OwnedFile socket = hostile_.listener.connect();
      (void)!::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL);
      for (;;) ::pause();
    }
    if (child > 0) children_.push_back(child);
  }

  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  // --- what must be so

  void check() {
    tranche_guard_answer answer{};
    // The neighbour takes, within its limit, what it likes, and gives it back.
    const uint64_t wanted = random_.below(kLimit / kMebibyte - held_) * kMebibyte;
    tranche_guard_lease question{};
    question.need_bytes = wanted;
    require(ask(question, TRANCHE_GUARD_LEASE, answer) && answer.status == 0,
            "the neighbour is refused within its limit");
    uint64_t& word = neighbour_.slots[honest_slot_ - 1].lease[0];
    word += wanted / TRANCHE_GUARD_UNIT;
    held_ += wanted / kMebibyte;
    require(ask(tranche_guard_gpu_request{}, TRANCHE_GUARD_USAGE, answer) &&
                answer.charged_bytes == held_ * kMebibyte,
            "the neighbour is charged what it did not take");
    question.need_bytes = kLimit - held_ * kMebibyte + TRANCHE_GUARD_UNIT;
    require(ask(question, TRANCHE_GUARD_LEASE, answer) && answer.status == ENOMEM,
            "the neighbour gets more than its limit");
    if (held_ > 600) {
      word -= held_ * kMebibyte / TRANCHE_GUARD_UNIT;
      held_ = 0;
    }
    check_usage();
    check_files();
  }

  void check_usage() {
    const wire::MessageHeader question{sizeof question, 1, static_cast<uint16_t>(wire::ArbiterKind::usage),
                                       9};
    (void)!::send(shepherd_.get(), &question, sizeof question, MSG_NOSIGNAL);
    char packet[wire::kMaxArbiterMessage];
    int entries = 0;
    for (int turn = 0; turn < 4096; ++turn) {
      serve(1);
      while (::recv(shepherd_.get(), packet, sizeof packet, MSG_DONTWAIT) > 0) {
        wire::UsageEntry entry;
        std::memcpy(&entry, packet, sizeof entry);
        if (entry.header.kind == static_cast<uint16_t>(wire::ArbiterKind::reply)) {
          require(entries == 4, "not every task is told");
          return;
        }
        ++entries;
        require(entry.granted_bytes <= entry.limit_bytes && entry.charged_bytes <= entry.granted_bytes &&
                    entry.limit_bytes == kLimit,
                "more is granted than the limit");
      }
    }
    fail("the daemon's question is not answered");
  }

  void check_files() {
    size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    require(folder != nullptr, "no /proc");
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    // Both ends of every connection, a pidfd for each connection and slot, listeners, pages.
    require(count < 4 * kMostConnections + 2 * 1024 + 64, "descriptors leak");
    most_files_ = std::max(most_files_, count);
  }

  Random random_;
  Job neighbour_{5};
  Job hostile_{6};
  std::unique_ptr<Listener> control_;
  std::unique_ptr<Server> server_;
  OwnedFile shepherd_, honest_;
  std::vector<OwnedFile> connections_;
  std::vector<pid_t> children_;
  uint32_t honest_slot_ = 0;
  uint64_t held_ = 0;  // MiB, of the neighbour
  uint64_t id_ = 100;
  uint64_t actions_ = 0;
  uint64_t restarts_ = 0;
  size_t most_files_ = 0;
};

int run(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Fuzz fuzz(g_seed);
  while (std::chrono::steady_clock::now() < end) {
    fuzz.round();
    ++g_rounds;
  }
  std::printf(
      "%llu packets, writes and other acts of a hostile job in %llu rounds, %llu restarts of the arbiter, "
      "seed %llu: "
      "nothing found\n",
      static_cast<unsigned long long>(fuzz.actions()), static_cast<unsigned long long>(g_rounds),
      static_cast<unsigned long long>(fuzz.restarts()), static_cast<unsigned long long>(g_seed));
  return 0;
}

}  // namespace
}  // namespace tranche::arbiter

int main(int argc, char** argv) {
  if (::geteuid() != 0) return std::puts("skipped: only root registers tasks"), 77;
  const char* seed = std::getenv("TRANCHE_SEED");
  tranche::arbiter::g_seed = std::strtoull(seed != nullptr ? seed : argc > 2 ? argv[2] : "1", nullptr, 10);
  return tranche::arbiter::run(argc > 1 ? std::atof(argv[1]) : 3);
}
