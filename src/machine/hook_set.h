// All receivers of notices that the configuration names: its [hook.NAME]s and [mail].
//
// A web hook gets
//   POST url
//   Content-Type: application/json
//   Tranche-Notice: <id>                           the same at each try
//   Tranche-Signature: t=<seconds>,v1=<hex>        HMAC-SHA-256 with the key of secret_file over
//   "<seconds>.<body>"
// A key is read at each try, so that it can be changed while the daemon runs.
//
// Threading: the reactor's thread; what blocks is done on one worker for each receiver.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codec/config.h"
#include "linux/http_types.h"
#include "machine/hook.h"

namespace tranche::machine {

class HookSet {
 public:
  using MakeWorker = std::function<std::unique_ptr<Worker>(const std::string& name)>;
  // What is known of jobs at the moment; borrowed for one call.
  using View = std::function<ViewSource()>;

  HookSet(Reactor& reactor, Engine& engine, const DaemonConfig& config, const MakeWorker& make_worker,
          View view);

  // Observers and places of all receivers, before the loop turns.
  void start(Journal& journal);

  // invalid_argument, naming what there is, when a job wants to tell somebody who is not configured.
  Result<void> check(const std::vector<api::NotifyRequest>& wishes) const;
  // "" when there are no receivers.
  api::DoctorCheck examine() const;
  bool is_empty() const { return hooks_.empty(); }

  // Of one user within an hour; what goes beyond is dropped and logged.
  static constexpr uint32_t kMailsAnHour = 100;

 private:
  void add_web(const HookConfig& hook, const MakeWorker& make_worker);
  void add_mail(const MailConfig& mail, const MakeWorker& make_worker);
  bool may_mail(uint32_t uid);

  Reactor& reactor_;
  Engine& engine_;
  View view_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::map<uint32_t, uint32_t> mails_;  // of this hour, by uid
  Duration mails_since_;
};

// For tests: the headers of one try.
HttpHeaders signed_headers(const std::string& id, const std::string& body, const std::string& key,
                           int64_t seconds);

}  // namespace tranche::machine
