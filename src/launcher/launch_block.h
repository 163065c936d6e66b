// Decoding of wire/launch_block.h: the only place where the root side looks at what a user wrote.
#pragma once

#include <string>
#include <vector>

#include "isolation/failure.h"
#include "wire/launch_block.h"

namespace tranche::launcher {

// Strings lie in `storage`; argument and variable pointers end with a null pointer, as execve wants them.
struct LaunchBlock {
  std::vector<char> storage;
  uint32_t umask = 0;
  const char* directory = nullptr;
  std::string stdin_path;
  std::string stdout_path;
  std::string stderr_path;
  std::vector<char*> arguments;
  std::vector<char*> variables;
};

// That it is a memfd of acceptable size whose content can no longer change.
isolation::Outcome<void> check_seals(int memory_file);
isolation::Outcome<LaunchBlock> read_launch_block(int memory_file);
// The same from bytes; moves them into the result.
isolation::Outcome<LaunchBlock> decode_launch_block(std::vector<char> bytes);

}  // namespace tranche::launcher
