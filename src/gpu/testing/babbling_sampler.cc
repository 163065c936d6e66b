// A sampler gone mad: sends messages of every kind with random contents, counts and sizes, then ends.
//
// $BABBLE_SEED says which; the same seed sends the same.
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/random.h"
#include "gpu/sampler_protocol.h"

namespace {

using tranche::Random;
using namespace tranche::sampler;

constexpr int kSocket = 3;
constexpr std::array kKinds{Kind::inventory, Kind::gpu,       Kind::gpu_problem, Kind::inventory_end,
                            Kind::reading,   Kind::user_name, Kind::progress,    Kind::check};

void send_bytes(std::vector<unsigned char>& bytes) {
  (void)::send(kSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

size_t whole_size(Kind kind, uint32_t count) {
  switch (kind) {
    case Kind::inventory:
      return sizeof(Inventory);
    case Kind::gpu:
      return sizeof(Gpu);
    case Kind::gpu_problem:
      return sizeof(GpuProblem);
    case Kind::user_name:
      return sizeof(UserName);
    case Kind::reading:
      return offsetof(Reading, processes) + count * sizeof(Process);
    case Kind::progress:
      return offsetof(Progress, activities) + count * sizeof(Activity);
    case Kind::xid:
      return sizeof(Xid);
    case Kind::mig_device:
      return sizeof(MigDevice);
    case Kind::inventory_end:
    case Kind::check:
    case Kind::resume:
      return sizeof(Header);
  }
  return sizeof(Header);
}

void babble(Random& random) {
  const Kind kind = kKinds[random.below(kKinds.size())];
  const auto count = static_cast<uint32_t>(random.below(70));
  std::vector<unsigned char> bytes(whole_size(kind, count));
  // Mostly zeros, or nothing would ever be adopted; sometimes noise all over.
  const uint64_t noise = random.below(4) == 0 ? 1 : 50;
  for (unsigned char& byte : bytes) {
    if (random.below(noise) == 0) byte = static_cast<unsigned char>(random.below(256));
  }
  Header header{.size = static_cast<uint32_t>(bytes.size()),
                .version = kProtocolVersion,
                .kind = kind,
                .id = random.below(3)};
  if (kind == Kind::reading)
    std::memcpy(bytes.data() + offsetof(Reading, process_count), &count, sizeof count);
  if (kind == Kind::progress) std::memcpy(bytes.data() + offsetof(Progress, count), &count, sizeof count);
  if (kind == Kind::inventory) bytes[offsetof(Inventory, problem)] = 0;
  // One in many is not even whole: that ends the conversation.
  if (random.below(40) == 0) header.size = static_cast<uint32_t>(random.below(100'000));
  std::memcpy(bytes.data(), &header, sizeof header);
  if (random.below(60) == 0) bytes.resize(1 + random.below(bytes.size()));
  send_bytes(bytes);
}

}  // namespace

int main() {
  const char* const seed = std::getenv("BABBLE_SEED");
  Random random(seed != nullptr ? std::stoull(seed) : 1);
  // A believable beginning, so that what follows finds GPUs to speak of.
  for (const Kind kind : {Kind::inventory, Kind::gpu, Kind::gpu, Kind::inventory_end}) {
    std::vector<unsigned char> bytes(whole_size(kind, 0));
    const Header header{
        .size = static_cast<uint32_t>(bytes.size()), .version = kProtocolVersion, .kind = kind, .id = 0};
    std::memcpy(bytes.data(), &header, sizeof header);
    if (kind == Kind::gpu) {
      bytes[offsetof(Gpu, index)] = static_cast<unsigned char>(random.below(3));
      bytes[offsetof(Gpu, uuid)] = static_cast<unsigned char>('a' + random.below(3));
    }
    send_bytes(bytes);
  }
  for (int i = 0; i < 200; ++i) babble(random);
}
