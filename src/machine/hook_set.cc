#include "machine/hook_set.h"

#include <algorithm>

#include "linux/digest.h"
#include "linux/files.h"
#include "linux/http_post.h"
#include "linux/log.h"
#include "linux/send_mail.h"

namespace tranche::machine {
namespace {

constexpr size_t kKeyBytesMax = 4096;
constexpr Duration kMailTimeout{30 * kSecond.count()};

Hook::Delivered delivered_of(const Result<int>& status) {
  if (!status) return {Hook::Outcome::kTryAgain, status.error().message()};
  const int code = *status;
  if (code >= 200 && code < 300) return {Hook::Outcome::kDelivered, ""};
  const std::string answer = "it answered " + std::to_string(code);
  if (code >= 300 && code < 400)
    return {Hook::Outcome::kRefused,
            answer + ", a redirect, which is not followed: configure where it leads"};
  const bool is_passing = code >= 500 || code == 408 || code == 425 || code == 429;
  return {is_passing ? Hook::Outcome::kTryAgain : Hook::Outcome::kRefused, answer};
}

// Runs on a worker: all that it needs is its own.
Hook::Delivered post(const HookConfig& hook, const std::string& id, const std::string& body, Time now) {
  std::string key;
  if (!hook.secret_file.empty()) {
    auto read = read_file(hook.secret_file, kKeyBytesMax);
    if (!read) return {Hook::Outcome::kTryAgain, "its secret_file cannot be read: " + read.error().message()};
    key = std::move(*read);
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
    if (key.empty()) return {Hook::Outcome::kTryAgain, "its secret_file is empty"};
  }
  HttpPost request;
  request.url = hook.url;
  request.headers = signed_headers(id, body, key, now.nanoseconds() / kSecond.count());
  request.body = body;
  request.ca_file = hook.ca_file;
  request.private_address = hook.private_address;
  return delivered_of(http_post(request));
}

}  // namespace

HttpHeaders signed_headers(const std::string& id, const std::string& body, const std::string& key,
                           int64_t seconds) {
  HttpHeaders headers = {{"Content-Type", "application/json"}, {"Tranche-Notice", id}};
  if (key.empty()) return headers;
  const std::string time = std::to_string(seconds);
  headers.push_back({"Tranche-Signature", "t=" + time + ",v1=" + hmac_sha256_hex(key, time + "." + body)});
  return headers;
}

HookSet::HookSet(Reactor& reactor, Engine& engine, const DaemonConfig& config, const MakeWorker& make_worker,
                 View view)
    : reactor_(reactor), engine_(engine), view_(std::move(view)) {
  for (const HookConfig& hook : config.hooks) add_web(hook, make_worker);
  if (!config.mail.program.empty()) add_mail(config.mail, make_worker);
}

void HookSet::add_web(const HookConfig& hook, const MakeWorker& make_worker) {
  std::vector<api::NoticeKind> of_all;
  for (const std::string& event : hook.events) {
    if (const auto kind = from_string<api::NoticeKind>(event)) of_all.push_back(*kind);
  }
  const auto takes = [hook, of_all](const Notice& notice) {
    if (notice.kind == Notice::Kind::kAlert) return hook.alerts;
    return hook.all_jobs && asks_for(of_all, notice);
  };
  const auto prepare = [this, hook](const Notice& notice) -> Hook::Delivery {
    return [hook, id = notice.id(), body = notice_json(view_(), notice), now = reactor_.clock().wall()] {
      return post(hook, id, body, now);
    };
  };
  hooks_.push_back(std::make_unique<Hook>(
      Hook::Parts{reactor_, engine_, hook.name, make_worker("hook-" + hook.name), takes, prepare}));
}

void HookSet::add_mail(const MailConfig& mail, const MakeWorker& make_worker) {
  const auto prepare = [this, mail](const Notice& notice) -> Hook::Delivery {
    const JobRecord* job = engine_.jobs().find(notice.job);
    if (job == nullptr || !may_mail(job->spec->owner.uid)) return nullptr;
    const std::string recipient = mail_recipient(*job, mail.domain);
    if (recipient.empty()) {
      log(LogLevel::warning, "mail_dropped", {{"job", job->id.value()}, {"user", job->spec->owner.user}});
      return nullptr;
    }
    return [mail, recipient, message = notice_mail(view_(), notice, mail.from, recipient)] {
      const auto sent = send_mail(mail.program, recipient, message, kMailTimeout);
      if (sent) return Hook::Delivered{Hook::Outcome::kDelivered, ""};
      return Hook::Delivered{Hook::Outcome::kTryAgain, sent.error().message()};
    };
  };
  hooks_.push_back(std::make_unique<Hook>(Hook::Parts{reactor_, engine_, "mail", make_worker("mail"),
                                                      [](const Notice&) { return false; }, prepare}));
}

bool HookSet::may_mail(uint32_t uid) {
  const Duration now = reactor_.clock().since_boot();
  if (now - mails_since_ >= kHour) {
    mails_.clear();
    mails_since_ = now;
  }
  const uint32_t sent = ++mails_[uid];
  if (sent == kMailsAnHour + 1) log(LogLevel::notice, "mails_of_user_dropped", {{"uid", uid}});
  return sent <= kMailsAnHour;
}

void HookSet::start(Journal& journal) {
  for (const auto& hook : hooks_) {
    const auto note = journal.read_note(hook->note_name());
    engine_.add_observer(*hook);
    hook->start(note ? *note : "");
  }
}

Result<void> HookSet::check(const std::vector<api::NotifyRequest>& wishes) const {
  for (const api::NotifyRequest& wish : wishes) {
    std::string names;
    bool is_known = false;
    for (const auto& hook : hooks_) {
      const std::string name = hook->status().name;
      names += (names.empty() ? "" : ", ") + name;
      is_known = is_known || name == wish.where;
    }
    if (is_known) continue;
    return fail(ErrorCode::invalid_argument,
                "nobody is called " + wish.where + " to be told: " +
                    (names.empty() ? "the configuration of this server has no hook and no mail"
                                   : "there is " + names));
  }
  return {};
}

api::DoctorCheck HookSet::examine() const {
  std::string detail;
  std::string trouble;
  for (const auto& hook : hooks_) {
    const Hook::Status status = hook->status();
    detail += (detail.empty() ? "" : "; ") + status.name + ": " + std::to_string(status.delivered) +
              " told, " + std::to_string(status.waiting) + " wait";
    if (status.given_up > 0) detail += ", " + std::to_string(status.given_up) + " given up";
    if (!status.problem.empty()) {
      trouble += (trouble.empty() ? "" : "; ") + status.name + ": " + status.problem;
    }
  }
  if (trouble.empty()) return {"hooks", api::CheckStatus::ok, detail, ""};
  return {"hooks", api::CheckStatus::warn, detail + "; " + trouble,
          "see [hook] and [mail] in the configuration; what waits is tried again for a day"};
}

}  // namespace tranche::machine
