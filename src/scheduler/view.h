// What would be free: a capacity with some nodes changed. Only changed nodes are copied, so a view of a large
// cluster in which one job has ended costs one node. A view in which many nodes change keeps them in buckets
// of its own, as the capacity does, so that nobody has to look at all of them.
#pragma once

#include <vector>

#include "base/assert.h"
#include "scheduler/capacity.h"

namespace tranche::scheduler {

class View {
 public:
  explicit View(const Capacity& base) : base_(&base) {}
  // On top of another one, which must outlive this and not change.
  explicit View(const View* under) : base_(under->base_), under_(under) {}

  const Capacity& base() const { return *base_; }
  const View* under() const { return under_; }
  const NodeRoom& at(NodeIndex index) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      if (const size_t slot = view->slot_of(index); slot != kNoSlot) return view->rooms_[slot];
    }
    return base_->at(index);
  }
  bool is_changed(NodeIndex index) const { return is_changed_above(nullptr, index); }
  // In this view or one between it and `below`, which is not looked at.
  bool is_changed_above(const View* below, NodeIndex index) const {
    for (const View* view = this; view != below; view = view->under_) {
      if (view->slot_of(index) != kNoSlot) return true;
    }
    return false;
  }
  // The topmost view that changes the node; null: none.
  const View* changed_by(NodeIndex index) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      if (view->slot_of(index) != kNoSlot) return view;
    }
    return nullptr;
  }
  bool changes_anything() const {
    return !nodes_.empty() || (under_ != nullptr && under_->changes_anything());
  }
  // Calls `visit(node)` for each changed node until it returns false; whether it never did.
  template <class Visit>
  bool visit_changed(Visit visit) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      if (!visit_own(view, visit)) return false;
    }
    return true;
  }
  // The same for those that are in no buckets.
  template <class Visit>
  bool visit_without_buckets(Visit visit) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      if (!view->keeps_buckets_ && !visit_own(view, visit)) return false;
    }
    return true;
  }

  // From now on the changed nodes are kept in buckets, and change by give() and take() alone.
  void keep_buckets() {
    TRANCHE_ASSERT(nodes_.empty());
    keeps_buckets_ = true;
  }
  bool keeps_buckets() const { return keeps_buckets_; }
  // Of this view alone; of a kind of which nothing is changed: empty.
  const Buckets& buckets(KindIndex kind) const {
    static const Buckets kNothing;
    return kind < buckets_.size() ? buckets_[kind] : kNothing;
  }
  // What the node has free of the kind: from the buckets, so not for a node that changed without.
  KindCount count(NodeIndex index, KindIndex kind) const {
    for (const View* view = this; view != nullptr; view = view->under_) {
      if (const size_t slot = view->slot_of(index); slot != kNoSlot)
        return of_kind(view->counts_[slot], kind);
    }
    return of_kind(base_->counts(index), kind);
  }

  // The node's room, to be changed: as it is below until somebody does. Good until the next call.
  NodeRoom& change(NodeIndex index) {
    TRANCHE_ASSERT(!keeps_buckets_);
    return rooms_[slot_for(index)];
  }
  void take(const Footprint& footprint) {
    const size_t slot = slot_for(*base_->index_of(footprint.node));
    rooms_[slot].take(footprint);
    if (keeps_buckets_) sort_in(slot);
  }
  void give(const Footprint& footprint) {
    const size_t slot = slot_for(*base_->index_of(footprint.node));
    rooms_[slot].give(footprint);
    if (keeps_buckets_) sort_in(slot);
  }
  // Many at once: each node is sorted into its bucket once. `visit(give)` calls give() with each of them.
  template <class VisitAll>
  void give_all(VisitAll visit) {
    BitSet given;
    visit([&](const Footprint& footprint) {
      const size_t slot = slot_for(*base_->index_of(footprint.node));
      rooms_[slot].give(footprint);
      given.insert(static_cast<uint32_t>(slot));
    });
    if (!keeps_buckets_) return;
    for (uint32_t slot = given.next(0); slot != BitSet::kNone; slot = given.next(slot + 1)) sort_in(slot);
  }

 private:
  static constexpr size_t kNoSlot = SIZE_MAX;
  static constexpr size_t kFewNodes = 8;  // that are found by looking at each
  struct NodeHash {
    uint64_t operator()(NodeIndex node) const { return mix_bits(node); }
  };

  template <class Visit>
  bool visit_own(const View* view, Visit& visit) const {
    for (const NodeIndex node : view->nodes_) {
      if (!is_changed_above(view, node) && !visit(node)) return false;
    }
    return true;
  }
  static KindCount of_kind(std::span<const KindCount> counts, KindIndex kind) {
    for (const KindCount& count : counts) {
      if (count.kind == kind) return count;
    }
    return {kind, 0, 0};
  }
  size_t slot_of(NodeIndex index) const {
    if (nodes_.size() > kFewNodes) {
      const auto found = slots_.find(index);
      return found ? *found : kNoSlot;
    }
    for (size_t slot = 0; slot < nodes_.size(); ++slot) {
      if (nodes_[slot] == index) return slot;
    }
    return kNoSlot;
  }
  size_t slot_for(NodeIndex index) {
    if (const size_t slot = slot_of(index); slot != kNoSlot) return slot;
    const size_t slot = nodes_.size();
    rooms_.push_back(NodeRoom(at(index)));
    nodes_.push_back(index);
    if (nodes_.size() > kFewNodes) {
      for (size_t each = slots_.size(); each < nodes_.size(); ++each)
        slots_.insert(nodes_[each], static_cast<uint32_t>(each));
    }
    if (keeps_buckets_) counts_.emplace_back();
    return slot;
  }
  void sort_in(size_t slot) {
    std::vector<KindCount>& known = counts_[slot];
    const bool is_new = known.empty();
    base_->count_kinds(nodes_[slot], rooms_[slot], counted_);
    for (size_t i = 0; i < counted_.size(); ++i) {
      if (!is_new && counted_[i] == known[i]) continue;
      const KindIndex kind = counted_[i].kind;
      if (buckets_.size() <= kind) buckets_.resize(size_t{kind} + 1);
      if (!is_new) buckets_[kind].erase(nodes_[slot], known[i]);
      buckets_[kind].insert(nodes_[slot], counted_[i]);
    }
    known = counted_;
  }

  const Capacity* base_;
  const View* under_ = nullptr;
  std::vector<NodeIndex> nodes_;  // in the order in which they changed
  std::vector<NodeRoom> rooms_;   // of them
  FlatIndex<NodeIndex, NodeHash> slots_;
  bool keeps_buckets_ = false;
  std::vector<std::vector<KindCount>> counts_;  // of them
  std::vector<Buckets> buckets_;                // by kind
  std::vector<KindCount> counted_;              // scratch
};

// A request is placed against several layers at once (what is free now, what is left when promised room is
// set aside, what a reservation leaves at its time): a node will do only if it does in every layer.
// Candidates come from the first layer, and preferences are judged on it.
using Layers = std::vector<const View*>;

}  // namespace tranche::scheduler
