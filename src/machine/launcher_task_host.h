// TaskHost over the launcher's socket (wire/launcher.h).
//
// Packets are sent at once; what the socket does not take now waits in a bounded queue. When the launcher
// goes away the host reconnects every 100 ms and tells the listener, which then asks list(): nothing is
// repeated blindly. What was outstanding is answered with `unavailable`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "linux/unique_fd.h"
#include "machine/task_host.h"
#include "wire/launcher.h"

namespace tranche::machine {

class LauncherTaskHost final : public TaskHost {
 public:
  // `emulated`: GPU nodes are the emulator's, see wire::kStartEmulatedNodes.
  LauncherTaskHost(Reactor& reactor, std::string socket_path, bool emulated);

  // Begins to connect. `listener` outlives this.
  void open(TaskListener& listener);

  bool is_connected() const override { return socket_.is_open(); }
  void start(const LaunchPlan& plan, UniqueFd client) override;
  void go(const TaskKey& task) override;
  void kill(const TaskKey& task, Duration grace) override;
  void forget(const TaskKey& task) override;
  void set_gpu_memory(const TaskKey& task, const std::vector<MemoryShare>& shares) override;
  void freeze(const TaskKey& task, bool frozen) override;
  void notify(const TaskKey& task, int32_t signal) override;
  void attach(const TaskKey& task, UniqueFd client, std::function<void(Result<void>)> done) override;
  void exec(const LaunchPlan& plan, UniqueFd client, std::function<void(Result<void>)> done) override;
  void list(Listed listed) override;
  void scan(const std::vector<uint32_t>& gpu_minors, Scanned scanned) override;
  void set_time_limit(const TaskKey& task, Duration limit) override;
  bool ports_are_free(uint16_t first, uint16_t count) override;

 private:
  using Replied = std::function<void(int32_t status, const std::string& text)>;
  // A request that waits for its Reply, with the entries that came before it.
  struct Outstanding {
    Replied replied;
    std::shared_ptr<std::vector<TaskRecord>> records;
    std::shared_ptr<std::vector<NodeHolder>> holders;
  };
  struct Packet {
    std::string bytes;
    std::vector<UniqueFd> file_descriptors;
  };

  void connect();
  void disconnected();
  template <class Message>
  void send(Message message, wire::LauncherKind kind, Outstanding outstanding,
            std::vector<UniqueFd> file_descriptors = {});
  void send_task(const TaskKey& task, wire::LauncherKind kind, Replied replied,
                 std::vector<UniqueFd> file_descriptors = {});
  using Again = std::function<void(Duration next_pause)>;
  Replied again_while_busy(Duration pause, Again ask);
  void send_go(const TaskKey& task, Duration pause);
  void send_forget(const TaskKey& task, Duration pause);
  void send_kill(const TaskKey& task, Duration grace, Duration pause);
  void flush();
  void receive();
  void dispatch(const char* bytes, size_t size);
  void take_reply(const wire::Reply& reply);

  Reactor& reactor_;
  std::string path_;
  bool emulated_;
  TaskListener* listener_ = nullptr;
  UniqueFd socket_;
  Reactor::Handle readable_, writable_, again_;
  std::deque<Packet> outbox_;
  std::map<uint64_t, Outstanding> outstanding_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Reactor::Handle> repeats_;
  uint64_t last_repeat_ = 0;
};

}  // namespace tranche::machine
