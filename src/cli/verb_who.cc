// tranche who: the processes on each GPU and whose they are, managed or not.
#include <algorithm>

#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_who(Session& session, const Arguments& arguments) {
  int64_t only = -1;
  if (!arguments.words.empty()) {
    const auto index = parse_integer(arguments.words.front(), 0, UINT32_MAX, "a GPU's index");
    if (!index)
      return invalid(in_quotes(arguments.words.front()) +
                     " is not the index of a GPU; 'tranche gpus' lists them");
    only = *index;
    if (arguments.has("json")) return invalid("--json gives all GPUs; leave out the index");
  }
  Daemon daemon(session);
  if (only >= 0) {
    TRY_ASSIGN(const std::string json, daemon.get("/v1/gpus"));
    TRY_ASSIGN(const api::GpuList list, Daemon::decoded<api::GpuList>(json));
    const bool is_there = std::any_of(list.gpus.begin(), list.gpus.end(),
                                      [&](const api::GpuStatus& gpu) { return gpu.index == only; });
    if (!is_there)
      return fail(ErrorCode::not_found,
                  "there is no GPU " + std::to_string(only) + "; 'tranche gpus' lists all");
  }
  TRY_ASSIGN(const std::string json, daemon.get("/v1/who"));
  if (arguments.has("json")) {
    session.print_json(json);
    return 0;
  }
  TRY_ASSIGN(const api::ProcessList list, Daemon::decoded<api::ProcessList>(json));
  Table table({{.title = "GPU", .right = true},
               {.title = "PID", .right = true},
               {.title = "USER", .width_min = 6},
               {.title = "JOB", .right = true},
               {.title = "MEMORY", .right = true},
               {.title = "COMMAND", .width_min = 10}});
  for (const api::ProcessRow& row : list.processes) {
    if (only >= 0 && row.gpu != only) continue;
    table.add({{std::to_string(row.gpu)},
               {std::to_string(row.pid)},
               {row.user},
               {row.job ? std::to_string(row.job->value()) : "-"},
               {row.memory ? format_memory(*row.memory) : "?"},
               {row.command.value_or(row.managed ? "" : "(unmanaged)")}},
              row.managed ? (row.uid == session.setup().uid ? Style::kBold : Style::kPlain) : Style::kYellow);
  }
  const bool nobody = table.empty();
  session.print(table.render(session.look(), !arguments.has("no-header")));
  if (nobody) session.note("no process uses a GPU\n");
  return 0;
}

}  // namespace tranche::cli
