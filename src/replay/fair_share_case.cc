#include "replay/fair_share_case.h"

#include <algorithm>
#include <map>

#include "replay/json_input.h"
#include "scheduler/queue_tree.h"

namespace tranche::replay {
namespace {

struct FairShareQueue {
  std::string name;
  int64_t deserved = 0;  // micro-units, negative: all there is
  int64_t limit = -1;    // negative: none
  int64_t weight = 0;
  int64_t priority = 0;
  int64_t request = 0;
  int64_t already_given = 0;
  int64_t created_order = 0;
};

struct FairShareCase {
  bool surplus_only = false;
  int64_t total = 0;
  int64_t usage_coefficient = 0;
  std::vector<FairShareQueue> queues;
  std::map<std::string, int64_t> fair_share;
  std::optional<int64_t> remaining;
};

FairShareQueue read_queue(json::Value value, JsonInput& parent) {
  JsonInput input(value, "queues");
  FairShareQueue queue;
  queue.name = input.text("name");
  queue.deserved = input.micro("deserved", 0);
  queue.limit = input.micro("limit", -kMicro);
  queue.weight = input.integer("weight", 0, 0);
  queue.priority = input.integer("priority", 0);
  queue.request = input.micro("request", 0);
  queue.already_given = input.micro("already_given", 0);
  queue.created_order = input.integer("created_order", 0);
  input.finish();
  parent.adopt(input);
  return queue;
}

Result<FairShareCase> read_case(json::Value value) {
  JsonInput input(value);
  FairShareCase result;
  for (const auto field : {"id", "source", "sources", "test", "resources"}) input.ignore(field);
  result.surplus_only = input.text("kind") == "surplus_only";
  result.total = input.micro("total", 0);
  result.usage_coefficient = input.micro("k", 0);
  for (const json::Value& queue : input.list("queues")) result.queues.push_back(read_queue(queue, input));
  if (const auto expected = input.object("expected")) {
    JsonInput inner(*expected, "expected");
    if (const auto shares = inner.object("fair_share")) {
      JsonInput amounts(*shares, "fair_share");
      json::Value child = shares->first();
      for (uint32_t i = 0; i < shares->size(); ++i, child = child.next())
        result.fair_share[std::string(child.key())] = amounts.micro(child.key(), 0);
      inner.adopt(amounts);
    }
    if (inner.has("remaining")) result.remaining = inner.micro("remaining", 0);
    inner.finish();
    input.adopt(inner);
  }
  input.finish();
  if (!input.problem().empty()) return fail(ErrorCode::corrupt, input.problem());
  if (result.usage_coefficient != 0)
    return fail(ErrorCode::not_available_yet, "not built yet: past use as a coefficient");
  return result;
}

// The scheduler's division, on a tree of one level. Its unit of amount is then a micro-unit.
std::vector<int64_t> divide(const FairShareCase& fair) {
  Policy policy;
  std::vector<const FairShareQueue*> order;
  for (const FairShareQueue& queue : fair.queues) order.push_back(&queue);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->created_order, a->name) < std::tuple(b->created_order, b->name);
  });
  std::vector<std::string> paths(fair.queues.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const FairShareQueue& queue = *order[i];
    QueuePolicy made;
    made.path = "q" + std::to_string(10'000 + i);
    paths[static_cast<size_t>(&queue - fair.queues.data())] = made.path;
    if (queue.deserved >= 0 && !fair.surplus_only) made.quota = MilliGpu(queue.deserved);
    if (queue.limit >= 0) made.limit = MilliGpu(queue.limit - (fair.surplus_only ? queue.already_given : 0));
    made.weight = queue.weight;
    made.priority = static_cast<int32_t>(queue.priority);
    policy.queues.push_back(made);
  }
  // Amounts are millionths here, and the tables divide whole units.
  policy.share_unit = MilliGpu(kMicro);
  scheduler::QueueTree tree;
  const Time now(kSecond.count());
  tree.configure(policy, now);
  for (size_t i = 0; i < paths.size(); ++i) {
    const FairShareQueue& queue = fair.queues[i];
    tree.add_waiting(*tree.find(paths[i]),
                     MilliGpu(queue.request - (fair.surplus_only ? queue.already_given : 0)));
  }
  tree.divide(MilliGpu(fair.total));
  std::vector<int64_t> result;
  for (size_t i = 0; i < paths.size(); ++i) {
    result.push_back(tree.at(*tree.find(paths[i])).entitled.count() +
                     (fair.surplus_only ? fair.queues[i].already_given : 0));
  }
  return result;
}

std::string micro_text(int64_t micro) {
  std::string digits = std::to_string(micro % kMicro);
  digits.insert(0, 6 - std::min<size_t>(digits.size(), 6), '0');
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  return std::to_string(micro / kMicro) + (digits.empty() ? "" : "." + digits);
}

}  // namespace

std::vector<std::string> run_fair_share_case(json::Value value) {
  const auto fair = read_case(value);
  if (!fair) return {fair.error().message()};
  const std::vector<int64_t> shares = divide(*fair);
  std::vector<std::string> problems;
  int64_t given = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const FairShareQueue& queue = fair->queues[i];
    given += shares[i] - queue.already_given * (fair->surplus_only ? 1 : 0);
    const auto expected = fair->fair_share.find(queue.name);
    if (expected == fair->fair_share.end() || expected->second == shares[i]) continue;
    problems.push_back("queue " + queue.name + " should get " + micro_text(expected->second) + " and gets " +
                       micro_text(shares[i]));
  }
  // Quotas may promise more than there is; what remains is then nothing.
  const int64_t remaining = std::max<int64_t>(fair->total - given, 0);
  if (fair->remaining && *fair->remaining != remaining)
    problems.push_back(micro_text(*fair->remaining) + " should remain and " + micro_text(remaining) +
                       " does");
  return problems;
}

}  // namespace tranche::replay
