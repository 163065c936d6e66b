// tranche share: what every queue is entitled to now, and the arithmetic behind it.
#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/queue_list.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_share(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.get("/v1/share"));
  if (arguments.has("json")) {
    session.print_json(json);
    return 0;
  }
  TRY_ASSIGN(const api::QueueList list, Daemon::decoded<api::QueueList>(json));
  Table table({{.title = "QUEUE", .width_min = 10},
               {.title = "QUOTA", .right = true},
               {.title = "WEIGHT", .right = true},
               {.title = "DEMAND", .right = true},
               {.title = "FAIR SHARE", .right = true},
               {.title = "USED", .right = true},
               {.title = "PAST USE (GPU-h)", .right = true}});
  for (const api::QueueRow& queue : list.queues) {
    const Style style = queue.used > queue.fair_share ? Style::kYellow : Style::kPlain;
    table.add({{queue_tree_text(queue.path)},
               {gpus_or_dash(queue.has_quota, queue.quota)},
               {std::to_string(queue.weight)},
               {format_thousandths(queue.demand.count())},
               {format_thousandths(queue.fair_share.count())},
               {format_thousandths(queue.used.count()), style},
               {format_thousandths(queue.usage_milli_gpu_hours)}});
  }
  session.print(table.render(session.look(), !arguments.has("no-header")));
  for (const api::QueueRow& queue : list.queues) {
    if (queue.arithmetic) session.print(printable(queue.path) + ": " + printable(*queue.arithmetic) + "\n");
  }
  if (list.queues.empty()) session.note("there is no queue yet; the first job of a user makes one\n");
  return 0;
}

}  // namespace tranche::cli
