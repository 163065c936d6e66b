#include "launcher/launcher_test_support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "isolation/cgroup_tree.h"

namespace tranche::launcher {

using isolation::FileDescriptor;
using wire::LauncherKind;

namespace {

constexpr int kPatienceMs = 10'000;

void append_string(std::string& bytes, const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes.append(text.c_str(), text.size() + 1);
}

std::string random_name() {
  uint32_t value = 0;
  EXPECT_EQ(::getrandom(&value, sizeof value, 0), ssize_t{sizeof value});
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

template <class Message>
Message request_of(LauncherKind kind, uint64_t id) {
  Message message{};
  message.header = {sizeof message, wire::kLauncherProtocolVersion, static_cast<uint16_t>(kind), id};
  return message;
}

}  // namespace

std::string encode_block(const BlockSpec& spec) {
  wire::LaunchBlockHeader header{};
  header.magic = wire::kLaunchBlockMagic;
  header.version = 1;
  header.header_size = sizeof header;
  header.umask = spec.umask;
  header.argument_count = static_cast<uint32_t>(spec.arguments.size());
  header.variable_count = static_cast<uint32_t>(spec.variables.size());
  std::string strings;
  for (const std::string* path : {&spec.directory, &spec.input, &spec.output, &spec.error})
    append_string(strings, *path);
  for (const std::string& argument : spec.arguments) append_string(strings, argument);
  for (const std::string& variable : spec.variables) append_string(strings, variable);
  header.total_size = static_cast<uint32_t>(sizeof header + strings.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + strings;
}

FileDescriptor make_sealed(const std::string& bytes, bool sealed) {
  FileDescriptor file(::memfd_create("launch-block", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_TRUE(file);
  EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  if (sealed) {
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
  }
  return file;
}

BlockSpec shell(const std::string& script) {
  BlockSpec spec;
  spec.arguments = {"/bin/sh", "-c", script};
  return spec;
}

wire::StartRequest start_request(uint64_t job, uint32_t uid, uint32_t rank, uint32_t attempt) {
  auto request = request_of<wire::StartRequest>(LauncherKind::start, 0);
  request.key = {job, rank, attempt};
  request.uid = request.gid = uid;
  request.cpu_milli = 1000;
  request.memory_mib = 256;
  request.pids_limit = 200;
  request.grace_ns = 2'000'000'000;
  return request;
}

bool eventually(const std::function<bool()>& condition) {
  for (int waited = 0; waited < kPatienceMs; ++waited) {
    if (condition()) return true;
    ::usleep(1000);
  }
  return condition();
}

bool process_exists(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  // Not by iterators of the buffer: they throw where the process goes between opening and reading.
  std::string text;
  std::getline(stat, text, '\0');
  const size_t close = text.rfind(')');
  return close != std::string::npos && close + 2 < text.size() && text[close + 2] != 'Z' &&
         text[close + 2] != 'X';
}

DaemonClient::DaemonClient(const std::string& run_folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/launcher.sock", run_folder.c_str());
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    socket_ = std::move(socket);
}

bool DaemonClient::send_raw(const void* bytes, size_t size, const std::vector<int>& files) {
  iovec part{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  }
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool DaemonClient::receive(int timeout_ms) {
  pollfd ready{socket_.get(), POLLIN, 0};
  if (::poll(&ready, 1, timeout_ms) != 1) return false;
  char buffer[wire::kMaxLauncherMessage];
  iovec part{buffer, sizeof buffer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (count < static_cast<ssize_t>(sizeof(wire::MessageHeader))) return false;
  Received received;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof file);
    received.file = FileDescriptor(file);
  }
  received.bytes.assign(buffer, static_cast<size_t>(count));
  std::memcpy(&received.header, buffer, sizeof received.header);
  EXPECT_EQ(received.header.size, static_cast<uint32_t>(count));
  kept_.push_back(std::move(received));
  return true;
}

bool DaemonClient::is_closed() {
  while (receive(kPatienceMs)) {
  }
  char byte = 0;
  return ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

Received DaemonClient::wait_for(const std::function<bool(const Received&)>& wanted, const char* what) {
  size_t looked = 0;
  for (;;) {
    for (; looked < kept_.size(); ++looked) {
      if (!wanted(kept_[looked])) continue;
      Received found = std::move(kept_[looked]);
      kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(looked));
      return found;
    }
    if (receive(kPatienceMs)) continue;
    std::ostringstream seen;
    for (const Received& packet : kept_) {
      seen << ' ' << packet.header.kind;
      if (packet.kind() == LauncherKind::start_failed)
        seen << " (" << packet.as<wire::StartFailedEvent>().text << ')';
    }
    ADD_FAILURE() << "no " << what << " came; seen kinds:" << seen.str();
    throw std::runtime_error(std::string("no answer: ") + what);
  }
}

Received DaemonClient::wait_for(LauncherKind kind, const wire::TaskKey& key) {
  const auto wanted = [&](const Received& packet) {
    if (packet.kind() != kind) return false;
    const auto event = packet.as<wire::TaskEvent>();
    return event.key.job == key.job && event.key.rank == key.rank && event.key.attempt == key.attempt;
  };
  return wait_for(wanted, ("event of kind " + std::to_string(static_cast<int>(kind))).c_str());
}

wire::Reply DaemonClient::wait_reply(uint64_t id, FileDescriptor* file) {
  Received packet = wait_for(
      [&](const Received& one) { return one.kind() == LauncherKind::reply && one.header.id == id; }, "reply");
  if (file != nullptr) *file = std::move(packet.file);
  return packet.as<wire::Reply>();
}

wire::Reply DaemonClient::start(wire::StartRequest request, const BlockSpec& block,
                                const std::vector<int>& more_files) {
  const FileDescriptor file = make_sealed(encode_block(block));
  request.header.id = next_id();
  std::vector<int> files = {file.get()};
  files.insert(files.end(), more_files.begin(), more_files.end());
  EXPECT_TRUE(send_raw(&request, sizeof request, files));
  return wait_reply(request.header.id);
}

wire::Reply DaemonClient::ask(LauncherKind kind, const wire::TaskKey& key) {
  auto request = request_of<wire::TaskRequest>(kind, next_id());
  request.key = key;
  EXPECT_TRUE(send_raw(&request, sizeof request));
  return wait_reply(request.header.id);
}

wire::Reply DaemonClient::kill(const wire::TaskKey& key, uint64_t grace_ns) {
  auto request = request_of<wire::KillRequest>(LauncherKind::kill, next_id());
  request.key = key;
  request.grace_ns = grace_ns;
  EXPECT_TRUE(send_raw(&request, sizeof request));
  return wait_reply(request.header.id);
}

std::vector<wire::TaskRecord> DaemonClient::list() {
  auto header = request_of<wire::TaskRequest>(LauncherKind::list, next_id()).header;
  header.size = sizeof header;
  EXPECT_TRUE(send_raw(&header, sizeof header));
  const wire::Reply reply = wait_reply(header.id);
  std::vector<wire::TaskRecord> records;
  for (uint32_t i = 0; i < reply.entries; ++i) {
    const Received entry = wait_for(
        [&](const Received& one) {
          return one.kind() == LauncherKind::list_entry && one.header.id == header.id;
        },
        "entry");
    records.push_back(entry.as<wire::ListEntry>().record);
  }
  return records;
}

void LauncherTest::SetUp() {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: a real launcher starts tasks as real users";
  if (::getenv("TRANCHE_LAB") == nullptr) GTEST_SKIP() << "needs the laboratory (tests/lab/enter)";
  const std::string name = random_name();
  run_folder_ = "/run/tranche-" + name;
  cgroup_root_ = "tranche-test-" + name;
  folder_ = "/run/work-" + name;
  ASSERT_EQ(::mkdir(folder_.c_str(), 0777), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
}

void LauncherTest::start_launcher(const std::vector<std::string>& more) {
  more_options_ = more;
  launcher_pid_ = ::fork();
  if (launcher_pid_ == 0) {
    std::vector<std::string> words = {TRANCHE_LAUNCHER, "--run-dir", run_folder_, "--cgroup-root",
                                      cgroup_root_};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(TRANCHE_LAUNCHER, arguments.data());
    ::_exit(127);
  }
  connect_daemon();
}

void LauncherTest::connect_daemon() {
  ASSERT_TRUE(eventually([&] {
    daemon_ = std::make_unique<DaemonClient>(run_folder_);
    return daemon_->is_connected() || ::waitpid(launcher_pid_, nullptr, WNOHANG) == launcher_pid_;
  }));
  ASSERT_TRUE(daemon_->is_connected()) << "the launcher did not start";
}

void LauncherTest::crash_launcher() {
  ASSERT_EQ(::kill(launcher_pid_, SIGKILL), 0);
  ASSERT_EQ(::waitpid(launcher_pid_, nullptr, 0), launcher_pid_);
  daemon_.reset();
}

void LauncherTest::end_all_tasks() {
  if (daemon_ == nullptr) connect_daemon();
  for (const wire::TaskRecord& record : daemon_->list()) {
    if (record.tasks_gone == 0) (void)daemon_->kill(record.key, 0);
    EXPECT_TRUE(eventually([&] { return daemon_->ask(LauncherKind::forget, record.key).status == 0; }))
        << "task " << record.key.job << "." << record.key.rank << " cannot be forgotten";
  }
}

void LauncherTest::TearDown() {
  if (launcher_pid_ == 0) return;
  end_all_tasks();
  daemon_.reset();
  ASSERT_EQ(::waitpid(launcher_pid_, nullptr, WNOHANG), 0) << "the launcher has died";
  ::kill(launcher_pid_, SIGTERM);
  int status = 0;
  ::waitpid(launcher_pid_, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "launcher ended with status " << status;
  // Nothing is left: no shared folder of a job, no record, no cgroup.
  const std::string jobs = run_folder_ + "/jobs";
  EXPECT_NE(::rmdir((run_folder_ + "/tasks").c_str()), -1) << "a record is left";
  EXPECT_EQ(content("/proc/self/mountinfo").find(jobs + "/"), std::string::npos) << "a job's mount is left";
  EXPECT_EQ(::umount2(jobs.c_str(), MNT_DETACH), 0);
  const auto mounts = isolation::parse_cgroup_mounts(content("/proc/self/mountinfo"));
  for (const std::string* mount : {&mounts.unified, &mounts.v1_memory, &mounts.v1_cpu, &mounts.v1_pids}) {
    const std::string root = *mount + "/" + cgroup_root_;
    if (!mount->empty()) {
      EXPECT_TRUE(eventually([&] { return ::rmdir(root.c_str()) == 0; })) << root << " is not empty";
    }
  }
}

wire::StartedEvent LauncherTest::begin(const wire::StartRequest& request, const BlockSpec& block) {
  const wire::Reply reply = daemon().start(request, block);
  EXPECT_EQ(reply.status, 0) << reply.text;
  (void)daemon().wait_for(LauncherKind::prepared, request.key);
  EXPECT_EQ(daemon().ask(LauncherKind::go, request.key).status, 0);
  return daemon().wait_for(LauncherKind::started, request.key).as<wire::StartedEvent>();
}

wire::TaskEnd LauncherTest::end_of(const wire::TaskKey& key) {
  const auto end = daemon().wait_for(LauncherKind::exited, key).as<wire::ExitedEvent>().end;
  (void)daemon().wait_for(LauncherKind::tasks_gone, key);
  return end;
}

wire::TaskEnd LauncherTest::run(const wire::StartRequest& request, const BlockSpec& block) {
  (void)begin(request, block);
  return end_of(request.key);
}

wire::StartFailedEvent LauncherTest::fail(const wire::StartRequest& request, const BlockSpec& block) {
  const wire::Reply reply = daemon().start(request, block);
  EXPECT_EQ(reply.status, 0) << reply.text;
  const auto event = daemon().wait_for(LauncherKind::start_failed, request.key).as<wire::StartFailedEvent>();
  (void)daemon().wait_for(LauncherKind::tasks_gone, request.key);
  return event;
}

std::string LauncherTest::content(const std::string& path) const {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

std::string LauncherTest::wait_content(const std::string& path) const {
  EXPECT_TRUE(eventually([&] { return !content(path).empty(); })) << path << " stays empty";
  return content(path);
}

}  // namespace tranche::launcher

// Tests that need the laboratory enter it by themselves; listing them does not.
int main(int count, char** arguments) {
  bool lists = false;
  for (int i = 1; i < count; ++i) lists = lists || std::strncmp(arguments[i], "--gtest_list", 12) == 0;
  if (!lists && ::geteuid() == 0 && ::getenv("TRANCHE_LAB") == nullptr) {
    std::vector<char*> words = {const_cast<char*>(TRANCHE_LAB_ENTER), const_cast<char*>("/proc/self/exe")};
    char self[4096] = {};
    if (::readlink("/proc/self/exe", self, sizeof self - 1) > 0) words[1] = self;
    words.insert(words.end(), arguments + 1, arguments + count);
    words.push_back(nullptr);
    ::execv(TRANCHE_LAB_ENTER, words.data());
    std::perror(TRANCHE_LAB_ENTER);
    return 1;
  }
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
