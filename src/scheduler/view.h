// What would be free: a capacity with some nodes changed. Only changed nodes are copied, so a view of a large
// cluster in which one job has ended costs one node.
#pragma once

#include <map>
#include <vector>

#include "scheduler/capacity.h"

namespace tranche::scheduler {

class View {
 public:
  explicit View(const Capacity& base) : base_(&base) {}
  // On top of another one, which must outlive this and not change.
  explicit View(const View* under) : base_(under->base_), under_(under) {}

  const Capacity& base() const { return *base_; }
  const NodeRoom& at(NodeIndex index) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      if (view->changed_.empty()) continue;
      const auto found = view->changed_.find(index);
      if (found != view->changed_.end()) return found->second;
    }
    return base_->at(index);
  }
  bool is_changed(NodeIndex index) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      if (!view->changed_.empty() && view->changed_.contains(index)) return true;
    }
    return false;
  }
  bool changes_anything() const {
    return !changed_.empty() || (under_ != nullptr && under_->changes_anything());
  }
  // Calls `visit(node)` for each changed node until it returns false; whether it never did.
  template <class Visit>
  bool visit_changed(Visit visit) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      for (const auto& [node, room] : view->changed_) {
        if (!is_changed_above(view, node) && !visit(node)) return false;
      }
    }
    return true;
  }

  // The node's room, to be changed: as it is below until somebody does.
  NodeRoom& change(NodeIndex index) {
    const auto found = changed_.find(index);
    if (found != changed_.end()) return found->second;
    return changed_.emplace(index, at(index)).first->second;
  }
  void take(const Footprint& footprint) { change(*base_->index_of(footprint.node)).take(footprint); }
  void give(const Footprint& footprint) { change(*base_->index_of(footprint.node)).give(footprint); }

 private:
  bool is_changed_above(const View* below, NodeIndex node) const {
    for (const View* view = this; view != below; view = view->under_) {
      if (view->changed_.contains(node)) return true;
    }
    return false;
  }

  const Capacity* base_;
  const View* under_ = nullptr;
  std::map<NodeIndex, NodeRoom> changed_;
};

// A request is placed against several layers at once (what is free now, what is left when promised room is
// set aside, what a reservation leaves at its time): a node will do only if it does in every layer.
// Candidates come from the first layer, and preferences are judged on it.
using Layers = std::vector<const View*>;

}  // namespace tranche::scheduler
