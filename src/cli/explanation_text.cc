#include "cli/explanation_text.h"

#include "cli/job_text.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

constexpr size_t kBlockersShown = 20;

std::string blockers_text(const Proof& proof) {
  std::string text;
  for (size_t i = 0; i < proof.blockers.size() && i < kBlockersShown; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(proof.blockers[i].value());
  }
  if (proof.blockers.size() > kBlockersShown) {
    text += " and " + std::to_string(proof.blockers.size() - kBlockersShown) + " more";
  }
  return text;
}

}  // namespace

std::string forecast_text(const Forecast& forecast, Time now) {
  std::string text;
  if (forecast.position > 0) text = "position " + std::to_string(forecast.position);
  if (!forecast.known) return text;
  if (!text.empty()) text += ", ";
  // From time limits only, so an upper bound as long as nothing of higher rank arrives: say so.
  if (forecast.start <= now) return text + "expected to start now";
  return text + "expected to start by " + local_time_text(forecast.start) + " (in " +
         duration_text(forecast.start - now) + ", from time limits)";
}

std::string explanation_text(const Explanation& explanation, Time now) {
  std::string text = "Why          " + printable(with_local_times(explanation.reason)) + "\n";
  // A job that runs, or starts with the next decision, waits for nothing.
  const bool waits = explanation.proof.kind != ProofKind::none;
  if (waits) {
    text += "Proof        " + std::string(to_string(explanation.proof.kind));
    if (!explanation.proof.queue.empty()) text += ", queue " + printable(explanation.proof.queue);
    text += "\n";
  }
  const std::string blockers = blockers_text(explanation.proof);
  if (!blockers.empty()) {
    text += std::string("Waits for    ") + (explanation.proof.blockers.size() == 1 ? "job " : "jobs ") +
            blockers + "\n";
  }
  if (explanation.proof.until.is_set())
    text += "Until        " + local_time_text(explanation.proof.until) + "\n";
  const std::string forecast = waits ? forecast_text(explanation.forecast, now) : std::string();
  if (!forecast.empty()) text += "Expected     " + forecast + "\n";
  for (const std::string& help : explanation.helps)
    text += "Would help   " + printable(with_local_times(help)) + "\n";
  return text;
}

}  // namespace tranche::cli
