#include "machine/launch_block.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "linux/files.h"
#include "linux/system_error.h"
#include "wire/launch_block.h"

namespace tranche::machine {
namespace {

Result<void> append_string(std::string& block, const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    return fail(ErrorCode::invalid_argument, "arguments, variables and paths cannot hold a NUL character");
  }
  const auto length = static_cast<uint32_t>(text.size());
  char bytes[sizeof length];
  std::memcpy(bytes, &length, sizeof length);
  block.append(bytes, sizeof length).append(text).push_back('\0');
  return {};
}

}  // namespace

Result<std::string> encode_launch_block(const LaunchPlan& plan) {
  std::string block(sizeof(wire::LaunchBlockHeader), '\0');
  for (const std::string* text : {&plan.directory, &plan.stdin_path, &plan.stdout_path, &plan.stderr_path}) {
    TRY(append_string(block, *text));
  }
  for (const std::string& argument : plan.arguments) TRY(append_string(block, argument));
  for (const std::string& variable : plan.environment) TRY(append_string(block, variable));
  if (block.size() > wire::kMaxLaunchBlock || plan.arguments.size() > wire::kMaxArguments ||
      plan.environment.size() > wire::kMaxVariables) {
    return fail(ErrorCode::too_large,
                "arguments and environment together are larger than 4 MiB: shorten them");
  }
  wire::LaunchBlockHeader header{};
  header.magic = wire::kLaunchBlockMagic;
  header.version = 1;
  header.header_size = sizeof header;
  header.total_size = static_cast<uint32_t>(block.size());
  header.umask = plan.umask & 0777;
  header.argument_count = static_cast<uint32_t>(plan.arguments.size());
  header.variable_count = static_cast<uint32_t>(plan.environment.size());
  std::memcpy(block.data(), &header, sizeof header);
  return block;
}

Result<UniqueFd> seal_in_memory(const std::string& bytes) {
  UniqueFd memory(::memfd_create("tranche-launch", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open()) return fail(system_error("making a launch block"));
  TRY(write_all(memory.get(), bytes));
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    return fail(system_error("sealing a launch block"));
  }
  return memory;
}

}  // namespace tranche::machine
