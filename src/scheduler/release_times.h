// When each node will have room for one task of a shape, if everything runs to its limit: the smallest first,
// without looking at all nodes.
//
// One tournament tree for each shape that was asked for, made when it is first asked for and brought up to
// date from the log of changed nodes when it is asked again. Only known from the state, never part of it: a
// copy starts empty.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/units.h"
#include "scheduler/waiting.h"

namespace tranche::scheduler {

struct State;

class ReleaseTimes {
 public:
  ReleaseTimes() = default;
  ReleaseTimes(const ReleaseTimes&) {}
  ReleaseTimes& operator=(const ReleaseTimes&) {
    trees_.clear();
    return *this;
  }
  ReleaseTimes(ReleaseTimes&&) = default;
  ReleaseTimes& operator=(ReleaseTimes&&) = default;
  ~ReleaseTimes() = default;

  // Calls `visit(node, time)` for nodes on which a task of the shape will fit, by time, then by position,
  // until it returns false. `time` is unset where one fits now.
  void visit(const State& state, ShapeId shape, const TypeChoice& choice,
             const std::function<bool(NodeIndex, Time)>& visit);

 private:
  struct Tree {
    Shape shape;
    TypeIndex type = 0;
    uint64_t machine_version = 0;
    uint64_t read_to = 0;  // of the capacity's log
    uint64_t last_use = 0;
    uint32_t leaves = 0;         // a power of two
    std::vector<int64_t> times;  // leaves, then parents: the smaller of two
  };
  Tree& tree_for(const State& state, const Shape& shape, const TypeChoice& choice);
  static void set(Tree& tree, NodeIndex node, int64_t time);

  std::vector<Tree> trees_;
  uint64_t uses_ = 0;
};

// When one task of the shape fits on the node: unset now, kNever if it never does. `give_back` false: what
// holds something on the node stays for ever.
Time earliest_on_node(const State& state, const Shape& shape, const TypeChoice& choice, NodeIndex node);

}  // namespace tranche::scheduler
