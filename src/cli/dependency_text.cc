#include "cli/dependency_text.h"

#include "cli/daemon.h"
#include "cli/job_ids.h"
#include "cli/option_error.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

struct Spelling {
  std::string_view text;
  DependencyKind kind;
};
// Slurm's names, which are shown; the API's own work too.
constexpr Spelling kSpellings[] = {
    {"afterok", DependencyKind::after_ok},    {"afternotok", DependencyKind::after_not_ok},
    {"afterany", DependencyKind::after_any},  {"after", DependencyKind::after_start},
    {"after_ok", DependencyKind::after_ok},   {"after_not_ok", DependencyKind::after_not_ok},
    {"after_any", DependencyKind::after_any}, {"after_start", DependencyKind::after_start}};

Result<DependencyKind> parse_kind(std::string_view text) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.text == text) return spelling.kind;
  }
  return invalid("a dependency is afterok:ID, afternotok:ID, afterany:ID or after:ID, not " +
                 in_quotes(text));
}

}  // namespace

Result<std::vector<DependencyWish>> parse_dependencies(std::string_view text) {
  std::vector<DependencyWish> wishes;
  for (const std::string& clause : split(text, ',')) {
    std::vector<std::string> parts = split(clause, ':');
    TRY_ASSIGN(const DependencyKind kind, parse_kind(parts.front()));
    if (parts.size() < 2) return invalid("name the jobs: " + parts.front() + ":ID");
    for (size_t i = 1; i < parts.size(); ++i) {
      TRY(parse_job_references(parts[i]));
      wishes.push_back({kind, parts[i]});
    }
  }
  return wishes;
}

Result<std::vector<Dependency>> resolve_dependencies(const Session& session, std::string_view text) {
  TRY_ASSIGN(const std::vector<DependencyWish> wishes, parse_dependencies(text));
  Daemon daemon(session);
  std::vector<Dependency> dependencies;
  for (const DependencyWish& wish : wishes) {
    TRY_ASSIGN(const std::vector<api::JobDetail> jobs,
               find_jobs(daemon, session, {&wish.jobs, 1}, BareArray::kWhole));
    for (const api::JobDetail& job : jobs) dependencies.push_back({wish.kind, job.job});
  }
  if (dependencies.size() > limits::kDependencies) {
    return invalid("a job waits for at most " + std::to_string(limits::kDependencies) +
                   " others, and these are " + std::to_string(dependencies.size()));
  }
  return dependencies;
}

std::string dependencies_text(const std::vector<Dependency>& dependencies) {
  std::string text;
  for (const Dependency& dependency : dependencies) {
    std::string_view kind;
    for (const Spelling& spelling : kSpellings) {
      if (kind.empty() && spelling.kind == dependency.kind) kind = spelling.text;
    }
    text += (text.empty() ? "" : ", ") + std::string(kind) + ":" + std::to_string(dependency.job.value());
  }
  return text;
}

}  // namespace tranche::cli
