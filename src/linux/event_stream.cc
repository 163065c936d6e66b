// Server-sent events: a bounded buffer between whoever sends and libmicrohttpd, which pulls.
#include <algorithm>
#include <cstring>

#include "linux/http_server_internal.h"

namespace tranche {
namespace {

// Of the format's fields: no line ends, which would begin another field.
void append_word(std::string& text, std::string_view word) {
  for (const char c : word) text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
}

std::string format_event(uint64_t id, std::string_view type, std::string_view data) {
  std::string text;
  text.reserve(data.size() + type.size() + 48);
  if (id != 0) text.append("id: ").append(std::to_string(id)).append("\n");
  if (!type.empty()) {
    text += "event: ";
    append_word(text, type);
    text += '\n';
  }
  // A lone carriage return would end a line too (HTML standard, 9.2.5).
  while (true) {
    const size_t end = std::min(data.find('\n'), data.size());
    text += "data: ";
    append_word(text, data.substr(0, end));
    text += '\n';
    if (end == data.size()) break;
    data.remove_prefix(end + 1);
  }
  text += '\n';
  return text;
}

}  // namespace

EventStream::Sent EventStreamState::append(uint64_t id, std::string text) {
  if (server == nullptr || is_ended) return EventStream::Sent::closed;
  EventStream::Sent outcome = EventStream::Sent::buffered;
  if (waiting_bytes + text.size() > server->options.stream_buffer_max) {
    // All that waits is dropped; but an event that is half sent must be finished.
    const size_t kept = sent > 0 ? 1 : 0;
    waiting.resize(kept);
    waiting_bytes = kept == 0 ? 0 : waiting.front().size() - sent;
    text = format_event(id, "resync", "{}");
    outcome = EventStream::Sent::resynced;
  }
  waiting_bytes += text.size();
  waiting.push_back(std::move(text));
  last_activity = server->now();
  wake();
  return outcome;
}

void EventStreamState::wake() {
  if (!is_suspended || connection == nullptr) return;
  is_suspended = false;
  ::MHD_resume_connection(connection);
  server->pump_soon();
}

void EventStreamState::report_closed() {
  if (!closed || server == nullptr) return;
  server->reactor.post([self = shared_from_this()] {
    const auto call = std::exchange(self->closed, nullptr);
    if (call) call();
  });
}

void EventStreamState::end() {
  hangup_watch.reset();
  if (server == nullptr) return;
  report_closed();
  server->close_stream(*this);
  server = nullptr;
  connection = nullptr;
}

ssize_t EventStreamState::read(char* buffer, size_t size) {
  size_t copied = 0;
  while (!waiting.empty() && copied < size) {
    const std::string& event = waiting.front();
    const size_t part = std::min(size - copied, event.size() - sent);
    std::memcpy(buffer + copied, event.data() + sent, part);
    copied += part;
    sent += part;
    if (sent < event.size()) break;
    sent = 0;
    waiting.pop_front();
  }
  waiting_bytes -= copied;
  if (copied > 0) return static_cast<ssize_t>(copied);
  if (is_ended || server == nullptr || server->is_stopping) return MHD_CONTENT_READER_END_OF_STREAM;
  is_suspended = true;
  ::MHD_suspend_connection(connection);
  return 0;
}

Result<std::shared_ptr<EventStreamState>> HttpServerState::open_stream(HttpConnection& client) {
  Usage& used = usage[client.owner];
  if (stream_count >= options.streams_max ||
      (client.owner != 0 && used.streams >= options.streams_per_uid_max)) {
    return fail(ErrorCode::over_limit, "too many event streams are open: close some, then try again");
  }
  ++used.streams;
  ++stream_count;
  auto stream = std::make_shared<EventStreamState>();
  stream->server = this;
  stream->connection = client.connection;
  stream->owner = client.owner;
  stream->last_activity = now();
  watch_hangup(reactor, client.socket, stream->hangup_watch, [borrowed = stream.get()] {
    borrowed->is_ended = true;
    borrowed->waiting.clear();
    borrowed->waiting_bytes = borrowed->sent = 0;
    borrowed->report_closed();
    borrowed->wake();
  });
  return stream;
}

void HttpServerState::close_stream(EventStreamState& stream) {
  --stream_count;
  --usage[stream.owner].streams;
}

EventStream::EventStream() = default;
EventStream::EventStream(std::shared_ptr<EventStreamState> state) : state_(std::move(state)) {}
EventStream::EventStream(EventStream&&) noexcept = default;

EventStream& EventStream::operator=(EventStream&& other) noexcept {
  std::swap(state_, other.state_);  // what this held ends when `other` goes
  return *this;
}

EventStream::~EventStream() {
  if (state_ == nullptr) return;
  state_->closed = nullptr;
  state_->is_ended = true;
  state_->wake();
}

EventStream::Sent EventStream::send(uint64_t id, std::string_view type, std::string_view data) {
  return state_ == nullptr ? Sent::closed : state_->append(id, format_event(id, type, data));
}

bool EventStream::is_open() const {
  return state_ != nullptr && state_->server != nullptr && !state_->is_ended;
}
size_t EventStream::buffered_bytes() const { return state_ == nullptr ? 0 : state_->waiting_bytes; }

void EventStream::on_close(Reactor::Callback closed) {
  if (state_ != nullptr) state_->closed = std::move(closed);
}

}  // namespace tranche
