#include "machine/interactive_sessions.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/quantity_text.h"
#include "wire/attach.h"
#include "wire/launcher.h"

namespace tranche::machine {
namespace {

// A terminal user notices half a second; a forecast of hundreds of waiting clients must stay cheap.
constexpr Duration kLookEvery{500 * kMillisecond.count()};
// As long as a started job without a terminal survives the loss of its client (design section 13).
constexpr Duration kArrivalMax{10 * kSecond.count()};

// A frame is small and the socket empty: what does not go at once is not worth waiting for.
void send_frame(int socket, wire::FrameType type, std::string_view payload) {
  wire::FrameHeader header{};
  header.size = static_cast<uint32_t>(payload.size());
  header.type = static_cast<uint8_t>(type);
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes += payload;
  (void)::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

void refuse_session(int socket, const std::string& reason) {
  wire::ExitFrame frame{};
  frame.exit_code = -1;
  frame.cause = static_cast<uint32_t>(wire::ExitCause::none);
  std::string payload(sizeof frame, '\0');
  std::memcpy(payload.data(), &frame, sizeof frame);
  send_frame(socket, wire::FrameType::exit, payload + reason);
}

InteractiveSessions::InteractiveSessions(Reactor& reactor, Engine& engine)
    : reactor_(reactor), engine_(engine) {}

void InteractiveSessions::expect(JobId job) {
  expected_[job] = reactor_.clock().since_boot() + kArrivalMax;
  arm();
}

void InteractiveSessions::arm() {
  if (timer_ == nullptr) timer_ = reactor_.at(reactor_.clock().since_boot() + kLookEvery, [this] { look(); });
}

void InteractiveSessions::add(JobId job, UniqueFd client, Terminal terminal) {
  Waiting& waiting = waiting_[job];
  waiting.session.client = std::move(client);
  waiting.session.terminal = terminal;
  expected_.erase(job);
  tell(job, waiting);
  arm();
  if (arrived_) arrived_(job);
}

InteractiveSessions::Session InteractiveSessions::take(JobId job) {
  const auto waiting = waiting_.find(job);
  if (waiting == waiting_.end()) return {};
  Session session = std::move(waiting->second.session);
  waiting_.erase(waiting);
  return session;
}

void InteractiveSessions::end(JobId job, const std::string& reason) {
  const auto waiting = waiting_.find(job);
  if (waiting == waiting_.end()) return;
  refuse_session(waiting->second.session.client.get(), reason);
  waiting_.erase(waiting);
}

void InteractiveSessions::on_step(const JournalRow& row) {
  for (const Decision& decision : row.decisions) {
    const auto* end = std::get_if<End>(&decision);
    if (end == nullptr) continue;
    expected_.erase(end->job);
    const JobRecord* job = engine_.jobs().find(end->job);
    this->end(end->job, job == nullptr ? "" : job->reason);
  }
}

void InteractiveSessions::look() {
  timer_.reset();
  std::vector<JobId> gone;
  for (auto& [job, waiting] : waiting_) {
    if (is_gone(waiting)) {
      gone.push_back(job);
    } else {
      tell(job, waiting);
    }
  }
  const Duration now = reactor_.clock().since_boot();
  for (const auto& [job, until] : expected_) {
    if (now >= until) gone.push_back(job);
  }
  for (const JobId job : gone) cancel(job);
  if (!waiting_.empty() || !expected_.empty()) arm();
}

void InteractiveSessions::cancel(JobId job) {
  waiting_.erase(job);
  expected_.erase(job);
  const JobRecord* record = engine_.jobs().find(job);
  if (record != nullptr && !is_final(record->state)) {
    engine_.record(JobCancelled{job, "tranche (its client went away)"});
  }
}

void InteractiveSessions::tell(JobId job, Waiting& waiting) {
  const auto why = engine_.scheduler().why(job);
  if (!why || why->state != JobState::pending) return;
  std::string line = why->reason;
  if (why->forecast.position > 0) {
    line = "position " + std::to_string(why->forecast.position) + ": " + line;
  }
  if (why->forecast.known) {
    const Duration wait = why->forecast.start - engine_.now();
    line += " Starts in " + format_duration(std::max(wait, Duration{})) + " at the latest, by time limits.";
  }
  // The estimate of every look differs by the time that passed; only what a reader would call news is sent.
  const std::string key = why->reason + "/" + std::to_string(why->forecast.position);
  if (key == waiting.progress) return;
  waiting.progress = key;
  send_frame(waiting.session.client.get(), wire::FrameType::progress, line);
}

bool InteractiveSessions::is_gone(const Waiting& waiting) const {
  pollfd descriptor{waiting.session.client.get(), POLLRDHUP, 0};
  return ::poll(&descriptor, 1, 0) > 0 && (descriptor.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace tranche::machine
