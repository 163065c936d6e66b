// A captured daemon and malformed launch blocks: the launcher never crashes and nothing malformed executes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/random.h"
#include "launcher/launch_block.h"
#include "launcher/launcher_test_support.h"

namespace tranche::launcher {
namespace {

using isolation::FileDescriptor;
using wire::LauncherKind;
using wire::StartStage;

uint64_t test_seed() {
  const char* given = ::getenv("TRANCHE_SEED");
  const uint64_t seed =
      given != nullptr ? ::strtoull(given, nullptr, 0) : static_cast<uint64_t>(::time(nullptr));
  std::printf("seed %llu (repeat with TRANCHE_SEED)\n", static_cast<unsigned long long>(seed));
  return seed;
}

void mutate(std::string& bytes, Random& random) {
  const uint64_t changes = 1 + random.below(6);
  for (uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t where = random.below(bytes.size());
    switch (random.below(5)) {
      case 0:
        bytes[where] = static_cast<char>(random.next());
        break;
      case 1:
        bytes.resize(where);
        break;
      case 2:
        bytes.append(random.below(64), static_cast<char>(random.next()));
        break;
      case 3:
        bytes.insert(where, 1 + random.below(8), '\0');
        break;
      default: {
        const uint32_t extreme[] = {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFB};
        const uint32_t value = extreme[random.below(std::size(extreme))];
        if (bytes.size() >= sizeof value) {
          memcpy(bytes.data() + random.below(bytes.size() - sizeof value + 1), &value, sizeof value);
        }
      }
    }
  }
}

class HostileTest : public LauncherTest {};

TEST_F(HostileTest, LaunchBlocksMustBeSealedAndWellFormed) {
  start_launcher();
  auto request = start_request(1, kAlice);
  const auto send_with = [&](const std::vector<int>& files) {
    request.header.id = daemon().next_id();
    EXPECT_TRUE(daemon().send_raw(&request, sizeof request, files));
    return daemon().wait_reply(request.header.id).status;
  };
  EXPECT_EQ(send_with({}), EINVAL);
  const FileDescriptor unsealed = make_sealed(encode_block(shell("true")), false);
  EXPECT_EQ(send_with({unsealed.get()}), EINVAL);
  const FileDescriptor plain(::open("/etc/passwd", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(send_with({plain.get()}), EINVAL);
  const FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(send_with({null.get()}), EINVAL);
  const FileDescriptor empty = make_sealed("");
  EXPECT_EQ(send_with({empty.get()}), EINVAL);
  const FileDescriptor large = make_sealed(std::string(wire::kMaxLaunchBlock + 1, 'x'));
  EXPECT_EQ(send_with({large.get()}), E2BIG);
  const FileDescriptor garbage = make_sealed("this is not a launch block at all");
  EXPECT_EQ(send_with({garbage.get()}), 0);
  const auto event = daemon().wait_for(LauncherKind::start_failed, request.key).as<wire::StartFailedEvent>();
  EXPECT_EQ(event.stage, static_cast<uint32_t>(StartStage::request));
}

TEST_F(HostileTest, UnknownAndShortRequestsAreAnswered) {
  start_launcher();
  for (const uint16_t kind : {uint16_t{0}, uint16_t{63}, uint16_t{64}, uint16_t{192}, uint16_t{65535}}) {
    wire::MessageHeader header{sizeof header, 1, kind, daemon().next_id()};
    EXPECT_TRUE(daemon().send_raw(&header, sizeof header));
    EXPECT_EQ(daemon().wait_reply(header.id).status, ENOSYS) << kind;
  }
  for (uint16_t kind = 1; kind <= 12; ++kind) {
    if (kind == static_cast<uint16_t>(LauncherKind::list)) continue;
    wire::MessageHeader header{sizeof header, 1, kind, daemon().next_id()};
    EXPECT_TRUE(daemon().send_raw(&header, sizeof header));
    EXPECT_EQ(daemon().wait_reply(header.id).status, EINVAL) << kind;
  }
}

TEST_F(HostileTest, LongerMessagesOfANewerReleaseAreUnderstood) {
  start_launcher();
  struct Newer {
    wire::StartRequest request;
    uint64_t field_of_tomorrow;
  };
  Newer newer{start_request(1, kAlice), 0};
  newer.request.header.size = sizeof newer;
  newer.request.header.version = 2;
  newer.request.header.id = daemon().next_id();
  const FileDescriptor block = make_sealed(encode_block(shell("exit 3")));
  EXPECT_TRUE(daemon().send_raw(&newer, sizeof newer, {block.get()}));
  EXPECT_EQ(daemon().wait_reply(newer.request.header.id).status, 0);
  (void)daemon().wait_for(LauncherKind::prepared, newer.request.key);
  EXPECT_EQ(daemon().ask(LauncherKind::go, newer.request.key).status, 0);
  EXPECT_EQ(end_of(newer.request.key).exit_code, 3);
}

TEST_F(HostileTest, MutatedRequestsNeitherCrashNorExecute) {
  start_launcher();
  Random random(test_seed());
  const std::string ran = folder() + "/ran";
  const std::string good_block = encode_block(shell("echo ran >>" + ran));
  for (int round = 0; round < 400; ++round) {
    const auto request = start_request(1 + random.below(3), kAlice, static_cast<uint32_t>(random.below(2)));
    std::string packet;
    if (random.chance(1, 2)) {
      packet.assign(reinterpret_cast<const char*>(&request), sizeof request);
    } else {
      packet.assign(reinterpret_cast<const char*>(&request), random.below(sizeof request));
      packet.resize(std::max<size_t>(packet.size(), 16));
      // Anything but Go: what was prepared from a good block may then execute rightly.
      uint16_t kind = 0;
      do kind = static_cast<uint16_t>(1 + random.below(14));
      while (kind == static_cast<uint16_t>(LauncherKind::go));
      memcpy(packet.data() + 6, &kind, sizeof kind);
    }
    uint16_t kind_before = 0;
    memcpy(&kind_before, packet.data() + 6, sizeof kind_before);
    mutate(packet, random);
    if (packet.size() >= 16) {
      uint64_t id = 0;
      memcpy(&id, packet.data() + 8, sizeof id);
      memcpy(packet.data() + 6, &kind_before, sizeof kind_before);
      // Mostly with a right size, to get past the first check.
      const auto size = static_cast<uint32_t>(packet.size());
      if (random.chance(7, 8)) memcpy(packet.data(), &size, sizeof size);
    }
    packet.resize(std::min<size_t>(packet.size(), 9000));
    std::string block = good_block;
    if (random.chance(1, 2)) mutate(block, random);
    const FileDescriptor file = make_sealed(block, !random.chance(1, 8));
    std::vector<int> files(random.below(4), file.get());
    if (!packet.empty()) (void)daemon().send_raw(packet.data(), packet.size(), files);
    // A packet that is none ends the connection; the daemon connects again.
    if (random.chance(1, 10)) connect_daemon();
    wire::MessageHeader ping{sizeof ping, 1, 63, daemon().next_id()};
    if (!daemon().send_raw(&ping, sizeof ping)) connect_daemon();
  }
  connect_daemon();
  (void)daemon().list();
  EXPECT_NE(::access(ran.c_str(), F_OK), 0) << "something executed without Go";
}

TEST(LaunchBlockTest, DecodesWhatWasEncoded) {
  BlockSpec spec = shell("exit 0");
  spec.directory = "/tmp";
  spec.input = "in";
  spec.output = "out";
  spec.error = "err";
  spec.umask = 0077;
  const std::string bytes = encode_block(spec);
  const auto block = decode_launch_block(std::vector<char>(bytes.begin(), bytes.end()));
  ASSERT_TRUE(block) << block.error().text;
  EXPECT_STREQ(block->directory, "/tmp");
  EXPECT_EQ(block->stdin_path, "in");
  EXPECT_EQ(block->stdout_path, "out");
  EXPECT_EQ(block->stderr_path, "err");
  EXPECT_EQ(block->umask, 0077U);
  ASSERT_EQ(block->arguments.size(), 4U);
  EXPECT_STREQ(block->arguments[2], "exit 0");
  EXPECT_EQ(block->arguments[3], nullptr);
  ASSERT_EQ(block->variables.size(), 2U);
}

TEST(LaunchBlockTest, EveryTruncationIsRefused) {
  const std::string bytes = encode_block(shell("exit 0"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode_launch_block(part)) << size;
    if (size < sizeof(wire::LaunchBlockHeader)) continue;
    // Also when the header lies about the size.
    const auto total = static_cast<uint32_t>(size);
    memcpy(part.data() + 8, &total, sizeof total);
    EXPECT_FALSE(decode_launch_block(part)) << size;
  }
}

TEST(LaunchBlockTest, MutationsNeverReadOutOfBounds) {
  Random random(test_seed());
  const std::string good = encode_block(shell("exit 0"));
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    mutate(bytes, random);
    const auto block = decode_launch_block(std::vector<char>(bytes.begin(), bytes.end()));
    if (!block) continue;
    // What is accepted is whole: walks every string to its end.
    size_t length = std::strlen(block->directory);
    for (const char* text : block->arguments) length += text != nullptr ? std::strlen(text) : 0;
    for (const char* text : block->variables) length += text != nullptr ? std::strlen(text) : 0;
    EXPECT_LT(length, bytes.size());
  }
}

}  // namespace
}  // namespace tranche::launcher
