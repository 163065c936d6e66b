// tranche queue: the tree of queues, their bounds and their load.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/queue_list.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_queue(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.get("/v1/queues"));
  if (arguments.has("json")) {
    session.print_json(json);
    return 0;
  }
  TRY_ASSIGN(const api::QueueList list, Daemon::decoded<api::QueueList>(json));
  // Processors and memory only where some queue is bounded in them.
  const bool with_host = std::any_of(list.queues.begin(), list.queues.end(),
                                     [](const api::QueueRow& queue) { return queue.has_host_bound(); });
  std::vector<Table::Column> columns = {
      {.title = "QUEUE", .width_min = 10},  {.title = "QUOTA", .right = true},
      {.title = "LIMIT", .right = true},    {.title = "WEIGHT", .right = true},
      {.title = "PRIORITY", .right = true}, {.title = "USED", .right = true},
      {.title = "RUNNING", .right = true},  {.title = "WAITING", .right = true}};
  if (with_host) {
    columns.push_back({.title = "CPUS"});
    columns.push_back({.title = "MEMORY"});
  }
  Table table(std::move(columns));
  for (const api::QueueRow& queue : list.queues) {
    std::vector<Table::Cell> row = {{queue_tree_text(queue.path)},
                                    {gpus_or_dash(queue.has_quota, queue.quota)},
                                    {gpus_or_dash(queue.has_limit, queue.limit)},
                                    {std::to_string(queue.weight)},
                                    {std::to_string(queue.priority)},
                                    {format_thousandths(queue.used.count())},
                                    {std::to_string(queue.jobs_running)},
                                    {std::to_string(queue.jobs_waiting)}};
    if (with_host) {
      row.push_back({cpu_of_bounds(queue)});
      row.push_back({memory_of_bounds(queue)});
    }
    table.add(std::move(row));
  }
  session.print(table.render(session.look(), !arguments.has("no-header")));
  if (list.queues.empty()) session.note("there is no queue yet; the first job of a user makes one\n");
  return 0;
}

}  // namespace tranche::cli
