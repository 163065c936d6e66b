// tranche-arbiter over its control socket (wire/arbiter.h). Connects when it is asked something; an arbiter
// that is not there, or does not answer within two seconds, is `unavailable`, and the next question tries
// anew. Nothing here waits.
#pragma once

#include <optional>

#include "base/reactor.h"
#include "linux/unique_fd.h"
#include "machine/memory_arbiter.h"
#include "wire/arbiter.h"

namespace tranche::machine {

class ArbiterClient final : public MemoryArbiter {
 public:
  ArbiterClient(Reactor& reactor, std::string socket_path);

  bool is_there() override;
  void usage(Answered answered) override;
  void set_limit(const TaskKey& task, const std::string& gpu, MiB limit, MiB guarantee) override;
  void set_board(const std::string& gpu, MiB usable, MiB elsewhere) override;

 private:
  struct Question {
    uint64_t id = 0;
    Answered answered;
    std::vector<ShareUsage> rows;
    wire::UsageRequest next{};
    Reactor::Handle timeout;
  };

  bool connect();
  template <class Message>
  bool send(Message message, wire::ArbiterKind kind);
  void ask_page();
  void receive();
  void take(const char* bytes, size_t size);
  void disconnect(const std::string& why);

  // Nobody was told yet: the next question is answered so, for what the next arbiter knows is not what this
  // one knew.
  bool was_lost_ = false;
  Reactor& reactor_;
  std::string path_;
  UniqueFd socket_;
  Reactor::Handle readable_;
  uint64_t next_id_ = 1;
  std::optional<Question> question_;
};

}  // namespace tranche::machine
