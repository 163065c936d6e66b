#include "emulator/cuda/memory_pool.h"

#include <unistd.h>

#include <algorithm>

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kUnit = 512;  // what a part's size is rounded to

uint64_t round_up(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

}  // namespace

Pool::~Pool() {
  Block block;
  for (const auto& [address, span] : live_) memory_->remove_block(address, block);
  for (const auto& [address, bytes] : chunks_) memory_->give_pages(address, bytes);
  if (file >= 0) close(file);
}

// Freed by the same stream, done, or the allocating stream may be made to wait for it.
bool Pool::may_use(const Part& part, const PoolMoment& moment) const {
  if (part.tag == 0 || part.stream == moment.stream) return true;
  return (reuse_[2] != 0 && part.tag <= moment.reached) || reuse_[3] != 0 || reuse_[1] != 0;
}

Pool::Parts::iterator Pool::find_part(uint64_t bytes, const PoolMoment& moment) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second.bytes < bytes || !may_use(it->second, moment)) continue;
    if (best == free_.end() || it->second.bytes < best->second.bytes) best = it;
  }
  return best;
}

CUresult Pool::grow(uint64_t bytes) {
  const uint64_t least = round_up_to_page(bytes);
  if (properties_.max_size != 0 && usage_.reserved + least > properties_.max_size)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t size = std::max(least, kPoolChunk);
  if (properties_.max_size != 0) size = std::min(size, properties_.max_size - usage_.reserved);
  size = std::max(round_up_to_page(size - kDevicePage + 1), least);
  CUdeviceptr address = 0;
  CUresult taken = memory_->take_pages(size, address);
  if (taken != CUDA_SUCCESS && size > least) taken = memory_->take_pages(size = least, address);
  if (taken != CUDA_SUCCESS) {
    trim_locked(0);
    taken = memory_->take_pages(size, address);
  }
  CUDA_TRY(taken);
  chunks_.emplace(address, size);
  usage_.reserved += size;
  usage_.reserved_high = std::max(usage_.reserved_high, usage_.reserved);
  insert_part(address, {size, 0, 0});
  return CUDA_SUCCESS;
}

CUresult Pool::allocate(uint64_t bytes, CUcontext context, const PoolMoment& moment, CUdeviceptr& address,
                        BlockKind kind) {
  if (bytes == 0 || bytes > UINT64_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t span = round_up(bytes);
  Block block;
  {
    const std::lock_guard lock(mutex_);
    auto part = find_part(span, moment);
    if (part == free_.end()) {
      CUDA_TRY(grow(span));
      part = find_part(span, moment);
      if (part == free_.end()) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    address = part->first;
    Part rest = part->second;
    free_.erase(part);
    if (rest.bytes > span) {
      rest.bytes -= span;
      free_.emplace(address + span, rest);
    }
    live_.emplace(address, span);
    usage_.used += span;
    usage_.used_high = std::max(usage_.used_high, usage_.used);
  }
  block.address = address;
  block.bytes = bytes;
  block.span = span;
  block.context = context;
  block.id = next_block_id();
  block.kind = kind == BlockKind::graph ? BlockKind::graph : BlockKind::pooled;
  block.pool = handle;
  block.backing = memory_->backing(address, span);
  memory_->add_block(block);
  return CUDA_SUCCESS;
}

// Joins neighbours in one chunk; the joined part is as fresh as the fresher of them.
void Pool::insert_part(CUdeviceptr address, Part part) {
  const auto join = [&part](const Part& other) {
    part.bytes += other.bytes;
    if (other.stream != part.stream) part.stream = 0;
    part.tag = std::max(part.tag, other.tag);
  };
  auto after = free_.lower_bound(address);
  if (after != free_.end() && after->first == address + part.bytes && chunks_.count(after->first) == 0) {
    join(after->second);
    after = free_.erase(after);
  }
  if (after != free_.begin() && chunks_.count(address) == 0) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes == address) {
      join(before->second);
      address = before->first;
      free_.erase(before);
    }
  }
  free_.emplace(address, part);
}

CUresult Pool::release(CUdeviceptr address, const PoolMoment& moment) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  memory_->remove_block(address, block);
  const uint64_t span = found->second;
  live_.erase(found);
  usage_.used -= span;
  insert_part(address, {span, moment.stream, moment.tag});
  return CUDA_SUCCESS;
}

void Pool::trim_locked(uint64_t keep) {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end() && usage_.reserved > keep;) {
    const auto part = free_.find(chunk->first);
    if (part == free_.end() || part->second.bytes != chunk->second) {
      ++chunk;
      continue;
    }
    memory_->give_pages(chunk->first, chunk->second);
    usage_.reserved -= chunk->second;
    free_.erase(part);
    chunk = chunks_.erase(chunk);
  }
}

void Pool::trim(uint64_t keep) {
  const std::lock_guard lock(mutex_);
  trim_locked(keep);
}

void Pool::settle() {
  const std::lock_guard lock(mutex_);
  if (usage_.reserved > release_threshold_) trim_locked(std::max(release_threshold_, usage_.used));
}

PoolUsage Pool::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void Pool::reset_high(bool reserved, bool used) {
  const std::lock_guard lock(mutex_);
  if (reserved) usage_.reserved_high = usage_.reserved;
  if (used) usage_.used_high = usage_.used;
}

int Pool::reuse(size_t attribute) const {
  const std::lock_guard lock(mutex_);
  return reuse_[attribute];
}

void Pool::set_reuse(size_t attribute, int allowed) {
  const std::lock_guard lock(mutex_);
  reuse_[attribute] = allowed;
}

uint64_t Pool::release_threshold() const {
  const std::lock_guard lock(mutex_);
  return release_threshold_;
}

void Pool::set_release_threshold(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  release_threshold_ = bytes;
}

int Pool::access(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  const auto found = access_.find(device);
  if (found != access_.end()) return found->second;
  return device == device_ ? kAccessReadWrite : kAccessNone;
}

void Pool::set_access(CUdevice device, int flags) {
  const std::lock_guard lock(mutex_);
  access_[device] = flags;
}

}  // namespace tranche::emulator::cuda
