// What root's side reads of what users wrote: the launch block, and the frames of whoever is at a task's
// other end.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "fuzz_target.h"
#include "launcher/client_stream.h"
#include "launcher/launch_block.h"

namespace tranche::fuzz {
namespace {

using isolation::FileDescriptor;

bool run_launch_block(std::string_view bytes) {
  const auto block = launcher::decode_launch_block(std::vector<char>(bytes.begin(), bytes.end()));
  if (!block) return false;
  require(block->directory != nullptr && block->directory[0] == '/', "a folder that is not absolute");
  require(
      !block->arguments.empty() && block->arguments.back() == nullptr && block->variables.back() == nullptr,
      "arguments and variables without an end");
  size_t length = 0;
  for (const auto* list : {&block->arguments, &block->variables}) {
    for (const char* text : *list) length += text == nullptr ? 0 : std::strlen(text) + 1;
  }
  require(length <= bytes.size(), "more text than there were bytes");
  return true;
}

std::string launch_block(const std::vector<std::string>& strings, uint32_t arguments, uint32_t variables) {
  std::string text;
  for (const std::string& string : strings) {
    const auto length = static_cast<uint32_t>(string.size());
    text.append(reinterpret_cast<const char*>(&length), sizeof length);
    text.append(string.c_str(), string.size() + 1);
  }
  wire::LaunchBlockHeader header{};
  header.magic = wire::kLaunchBlockMagic;
  header.version = 1;
  header.header_size = sizeof header;
  header.total_size = static_cast<uint32_t>(sizeof header + text.size());
  header.umask = 022;
  header.argument_count = arguments;
  header.variable_count = variables;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + text;
}

std::vector<std::string> launch_block_seeds() {
  return {launch_block({"/home/alice", "", "", "", "true"}, 1, 0),
          launch_block({"/", "in.txt", "/tmp/out", "err", "sh", "-c", "exit 7", "PATH=/bin", "A="}, 3, 2)};
}

std::vector<std::string> launch_block_words() {
  return {"=", "/", std::string(4, '\0'), std::string("\1\0\0\0", 4)};
}

// Frames of the client against a task that reads nothing of what it is sent.
bool run_client_frames(std::string_view bytes) {
  int ends[2], input[2], output[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 && ::pipe2(input, O_CLOEXEC) == 0 &&
              ::pipe2(output, O_CLOEXEC) == 0,
          "no sockets");
  const FileDescriptor client(ends[1]), task_input(input[0]), task_output(output[1]);
  require(
      ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
      "a socket does not take an input");
  ::shutdown(client.get(), SHUT_WR);
  launcher::EventLoop loop;
  bool ended = false, detached = false;
  launcher::ClientStream stream(
      loop, {[](int signal) { require(signal > 0 && signal <= 64, "a signal that is none"); },
             [&] { ended = true; }, [&] { ended = detached = true; }, [&] { ended = true; }});
  stream.set_task(FileDescriptor(input[1]), FileDescriptor(output[0]), {}, false);
  stream.set_client(FileDescriptor(ends[0]));
  while (!ended) loop.run_once();
  return detached;
}

std::string frame(wire::FrameType type, std::string_view payload) {
  wire::FrameHeader header{};
  header.size = static_cast<uint32_t>(payload.size());
  header.type = static_cast<uint8_t>(type);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(payload);
}

std::vector<std::string> client_frame_seeds() {
  const std::string signal("\x0f\0\0\0", 4);
  const std::string detach = frame(wire::FrameType::detach, "");
  return {frame(wire::FrameType::stdin_data, "hello\n") + frame(wire::FrameType::stdin_end, "") + detach,
          frame(wire::FrameType::window_size, std::string("\x18\0\x50\0", 4)) +
              frame(wire::FrameType::signal, signal) + detach,
          detach};
}

std::vector<std::string> no_words() { return {}; }

}  // namespace

std::vector<Target> launcher_targets() {
  return {{"launch", run_launch_block, launch_block_seeds, launch_block_words},
          {"client", run_client_frames, client_frame_seeds, no_words}};
}

}  // namespace tranche::fuzz
