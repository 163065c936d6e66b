#include "emulator/server_description.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "emulator/board.h"
#include "emulator/driver_level.h"

namespace tranche::emulator {
namespace {

constexpr size_t kMaxNameBytes = 63;
constexpr size_t kMaxVersionBytes = 31;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

Result<void> apply_statement(std::string_view key, std::string_view value, ServerDescription& server) {
  if (key == "board") return add_boards(value, server);
  if (key == "driver") {
    TRY_ASSIGN(server.driver_version, driver_version_of(value));
    return {};
  }
  if (key == "name") {
    if (value.empty() || value.size() > kMaxNameBytes) {
      return fail(ErrorCode::invalid_argument, "a server name has 1 to 63 characters");
    }
    server.name = value;
    return {};
  }
  if (key == "guest") return set_guest(value, server);
  if (key == "sharing") return set_sharing(value, server);
  return fail(ErrorCode::invalid_argument,
              "\"" + std::string(key) + "\" is not understood; write board, driver, guest, sharing or name");
}

}  // namespace

Result<void> set_guest(std::string_view value, ServerDescription& server) {
  if (value == "wsl") {
    return fail(
        ErrorCode::invalid_argument,
        "the Windows Subsystem for Linux is not emulated: its driver has no device nodes and tells no "
        "processes, so nothing can be enforced there; emulate none, passthrough or vgpu");
  }
  server.is_licensed = value != "vgpu-unlicensed";
  if (value == "none") {
    server.guest = Guest::none;
  } else if (value == "passthrough") {
    server.guest = Guest::passthrough;
  } else if (value == "vgpu" || value == "vgpu-unlicensed") {
    server.guest = Guest::vgpu;
  } else {
    return fail(ErrorCode::invalid_argument,
                "\"" + std::string(value) +
                    "\" is not a kind of guest; write none, passthrough, vgpu or "
                    "vgpu-unlicensed");
  }
  return {};
}

Result<void> set_sharing(std::string_view text, ServerDescription& server) {
  constexpr std::string_view kSomeGpus = "mps@";
  server.mps_everywhere = text == "mps";
  server.mps_gpus.clear();
  if (text == "mps" || text == "slices") return {};
  if (text.substr(0, kSomeGpus.size()) != kSomeGpus) {
    return fail(
        ErrorCode::invalid_argument,
        "\"" + std::string(text) + "\" is no way of sharing; write slices, mps, or mps@0,3 for GPUs 0 and 3");
  }
  text.remove_prefix(kSomeGpus.size());
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    TRY_ASSIGN(const int64_t gpu, parse_integer(text.substr(0, comma), 0, kMaxGpus - 1, "the GPU's number"));
    server.mps_gpus.push_back(static_cast<uint32_t>(gpu));
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return {};
}

Result<void> add_boards(std::string_view specification, ServerDescription& server) {
  const size_t colon = specification.find(':');
  TRY_ASSIGN(const uint32_t board, find_board(specification.substr(0, colon)));
  int64_t count = 1;
  if (colon != std::string_view::npos) {
    TRY_ASSIGN(count, parse_integer(specification.substr(colon + 1), 1, kMaxGpus, "the number of GPUs"));
  }
  if (server.gpus.size() + static_cast<size_t>(count) > kMaxGpus) {
    return fail(ErrorCode::invalid_argument, "an emulated server has at most 64 GPUs; ask for fewer");
  }
  server.gpus.insert(server.gpus.end(), static_cast<size_t>(count), board);
  return {};
}

Result<ServerDescription> parse_server_description(std::string_view text) {
  ServerDescription server;
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return fail(ErrorCode::invalid_argument,
                  "line " + std::to_string(line_number) + ": write it as \"key = value\"");
    }
    auto applied = apply_statement(trim(line.substr(0, equals)), trim(line.substr(equals + 1)), server);
    if (!applied) {
      return fail(std::move(applied).error().with_context("line " + std::to_string(line_number)));
    }
  }
  if (server.gpus.empty()) {
    return fail(ErrorCode::invalid_argument,
                "the server has no GPU; add a line such as \"board = h100-80:4\"");
  }
  return server;
}

Result<void> check_driver_version(std::string_view version) {
  const bool digits_and_dots =
      std::all_of(version.begin(), version.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  const size_t dot = version.find('.');
  if (!digits_and_dots || dot != 3 || version.size() > kMaxVersionBytes || version.back() == '.') {
    return fail(ErrorCode::invalid_argument,
                "\"" + std::string(version) + "\" is not a driver version; write one such as 550.163.01");
  }
  return {};
}

}  // namespace tranche::emulator
