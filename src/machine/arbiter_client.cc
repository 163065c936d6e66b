#include "machine/arbiter_client.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "linux/unix_socket.h"
#include "machine/device_uuid.h"

namespace tranche::machine {
namespace {

constexpr Duration kLongestAnswer{2 * kSecond.count()};
// More than any arbiter has: one that goes on for ever is not believed.
constexpr size_t kRowsMax = 1'000'000;

template <class Message>
Message read_message(const char* bytes, size_t size) {
  Message message{};
  std::memcpy(&message, bytes, std::min(size, sizeof message));
  return message;
}

ShareUsage usage_of(const wire::UsageEntry& entry) {
  ShareUsage usage;
  usage.task = {JobId(entry.key.job), entry.key.rank, entry.key.attempt};
  usage.gpu = device_uuid_digits(entry.uuid);
  usage.limit = entry.limit_bytes;
  usage.guarantee = entry.guarantee_bytes;
  usage.charged = entry.charged_bytes;
  usage.granted = entry.granted_bytes;
  usage.owed = entry.owed_bytes;
  usage.denied = std::min<uint64_t>(entry.denied, INT64_MAX);
  usage.processes = entry.processes;
  usage.waits = entry.waits;
  usage.held_by_driver = entry.held_by_driver != 0;
  return usage;
}

bool uuid_bytes(const std::string& digits, uint8_t (&uuid)[16]) {
  return parse_device_uuid("GPU-" + digits, uuid);
}

}  // namespace

ArbiterClient::ArbiterClient(Reactor& reactor, std::string socket_path)
    : reactor_(reactor), path_(std::move(socket_path)) {}

bool ArbiterClient::connect() {
  if (socket_.is_open()) return true;
  auto socket = connect_unix(path_, SocketKind::kPacket);
  if (!socket) return false;
  ::fcntl(socket->get(), F_SETFL, O_NONBLOCK);
  socket_ = std::move(*socket);
  readable_ = reactor_.on_readable(socket_.get(), [this] { receive(); });
  return true;
}

bool ArbiterClient::is_there() {
  // The reactor may not have come to its end yet.
  pollfd watched{socket_.get(), 0, 0};
  if (socket_.is_open() && ::poll(&watched, 1, 0) > 0 && (watched.revents & (POLLHUP | POLLERR)) != 0)
    disconnect("the arbiter went away");
  return connect();
}

// A socket that is full is one whose arbiter has stopped: it is left, and tried anew.
template <class Message>
bool ArbiterClient::send(Message message, wire::ArbiterKind kind) {
  if (!connect()) return false;
  message.header = {sizeof message, wire::kArbiterProtocolVersion, static_cast<uint16_t>(kind), next_id_++};
  return send_message(socket_.get(), std::as_bytes(std::span(&message, 1))).has_value();
}

void ArbiterClient::usage(Answered answered) {
  if (question_) {
    answered(fail(ErrorCode::conflict, "the arbiter is being asked already"));
    return;
  }
  if (was_lost_) {
    was_lost_ = false;
    return answered(fail(ErrorCode::unavailable, "the arbiter went away"));
  }
  question_.emplace();
  question_->answered = std::move(answered);
  question_->timeout = reactor_.at(reactor_.clock().since_boot() + kLongestAnswer,
                                   [this] { disconnect("the arbiter does not answer"); });
  ask_page();
}

void ArbiterClient::ask_page() {
  const uint64_t id = next_id_;
  question_->id = id;
  if (send(question_->next, wire::ArbiterKind::usage)) return;
  // Not from within the question: who asks does not expect to be called back meanwhile.
  reactor_.post([this, id] {
    if (question_ && question_->id == id) disconnect("the arbiter is not running");
  });
}

void ArbiterClient::set_limit(const TaskKey& task, const std::string& gpu, MiB limit, MiB guarantee) {
  wire::SetMemoryLimit message{};
  if (!uuid_bytes(gpu, message.uuid)) return;
  message.key = {task.job.value(), task.rank, task.attempt};
  message.limit_bytes = static_cast<uint64_t>(limit.count()) << 20;
  message.guarantee_bytes = static_cast<uint64_t>(guarantee.count()) << 20;
  (void)send(message, wire::ArbiterKind::set_limit);
}

void ArbiterClient::set_board(const std::string& gpu, MiB usable, MiB elsewhere) {
  wire::SetBoard message{};
  if (!uuid_bytes(gpu, message.uuid)) return;
  message.usable_bytes = static_cast<uint64_t>(usable.count()) << 20;
  message.elsewhere_bytes = static_cast<uint64_t>(elsewhere.count()) << 20;
  (void)send(message, wire::ArbiterKind::set_board);
}

void ArbiterClient::receive() {
  constexpr int kPacketsAtATime = 256;
  char buffer[wire::kMaxArbiterMessage];
  for (int i = 0; i < kPacketsAtATime && socket_.is_open(); ++i) {
    const auto message = receive_message(socket_.get(), std::as_writable_bytes(std::span(buffer)));
    if (!message && message.error().code() == ErrorCode::timed_out) return;
    if (!message || message->size == 0) return disconnect("the arbiter went away");
    take(buffer, message->size);
  }
}

void ArbiterClient::take(const char* bytes, size_t size) {
  const auto header = read_message<wire::MessageHeader>(bytes, size);
  if (!question_ || header.id != question_->id) return;  // the answer to a setting
  if (header.kind == static_cast<uint16_t>(wire::ArbiterKind::usage_entry)) {
    const auto entry = read_message<wire::UsageEntry>(bytes, size);
    question_->next.after = entry.key;
    question_->next.after_gpu = entry.gpu;
    if (question_->rows.size() < kRowsMax) question_->rows.push_back(usage_of(entry));
    return;
  }
  if (header.kind != static_cast<uint16_t>(wire::ArbiterKind::reply)) return;
  const auto reply = read_message<wire::ArbiterReply>(bytes, size);
  if (reply.entries == wire::kUsagePage && question_->rows.size() < kRowsMax) return ask_page();
  Question done = std::move(*question_);
  question_.reset();
  done.answered(std::move(done.rows));
}

void ArbiterClient::disconnect(const std::string& why) {
  readable_.reset();
  socket_.reset();
  was_lost_ = !question_;
  if (!question_) return;
  Question lost = std::move(*question_);
  question_.reset();
  lost.answered(fail(ErrorCode::unavailable, why));
}

}  // namespace tranche::machine
