// --retry and --signal.
#include <signal.h>

#include <algorithm>

#include "base/quantity_text.h"
#include "cli/job_request.h"
#include "cli/option_error.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

// Slurm's lead when none is written.
constexpr Duration kSignalLead = kMinute;

struct SignalName {
  std::string_view name;
  int number;
};
constexpr SignalName kSignalNames[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},
                                       {"KILL", SIGKILL}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2},
                                       {"TERM", SIGTERM}, {"ALRM", SIGALRM}, {"CONT", SIGCONT},
                                       {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}};

Result<void> take_retries(std::string_view kind, uint32_t count, api::RetryRequest& retry) {
  if (kind == "error") {
    retry.error = count;
  } else if (kind == "oom" || kind == "out_of_memory" || kind == "out-of-memory") {
    retry.out_of_memory = count;
  } else if (kind == "infrastructure") {
    retry.infrastructure = count;
  } else {
    return invalid("there are error, oom and infrastructure, as in error:1,infrastructure:3, not " +
                   in_quotes(kind));
  }
  return {};
}

}  // namespace

Result<int32_t> parse_signal(std::string_view text) {
  if (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    TRY_ASSIGN(const int64_t number, parse_integer(text, 1, limits::kSignalMax, "a signal"));
    return static_cast<int32_t>(number);
  }
  const std::string_view name = text.starts_with("SIG") ? text.substr(3) : text;
  for (const SignalName& known : kSignalNames) {
    if (known.name == name) return known.number;
  }
  return invalid("write a signal by its name, such as USR1, or its number, not " + in_quotes(text));
}

Result<api::RetryRequest> parse_retry(std::string_view text) {
  api::RetryRequest retry;
  if (text.find(':') == std::string_view::npos) {
    TRY_ASSIGN(const int64_t count, parse_integer(text, 1, limits::kRetriesMax, "the number of retries"));
    retry.error = retry.out_of_memory = retry.infrastructure = static_cast<uint32_t>(count);
    return retry;
  }
  for (const std::string& part : split(text, ',')) {
    const size_t colon = std::min(part.find(':'), part.size());
    const std::string_view view = part;
    TRY_ASSIGN(const int64_t count, parse_integer(view.substr(std::min(colon + 1, view.size())), 0,
                                                  limits::kRetriesMax, "the number of retries"));
    TRY(take_retries(view.substr(0, colon), static_cast<uint32_t>(count), retry));
  }
  return retry;
}

Result<api::SignalRequest> parse_limit_signal(std::string_view text) {
  // Slurm's marks for whom it is meant; here it goes to those who have a handler for it.
  for (const std::string_view mark : {"R", "B", "RB", "BR"}) {
    if (text.starts_with(mark) && text.substr(mark.size()).starts_with(':'))
      text.remove_prefix(mark.size() + 1);
  }
  api::SignalRequest signal{0, kSignalLead};
  const size_t at = text.find('@');
  TRY_ASSIGN(signal.number, parse_signal(text.substr(0, at)));
  if (at == std::string_view::npos) return signal;
  const std::string_view lead = text.substr(at + 1);
  const bool bare = !lead.empty() && lead.find_first_not_of("0123456789") == std::string_view::npos;
  // A bare number is seconds: so it is with Slurm, whose scripts bring this option.
  TRY_ASSIGN(signal.before, parse_duration(bare ? std::string(lead) + "s" : std::string(lead)));
  if (signal.before < kSecond) return invalid("the signal comes at least 1s before the time limit");
  return signal;
}

}  // namespace tranche::cli
