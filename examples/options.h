// Command-line options of the examples: `--name VALUE` and `--name=VALUE`, numbers in a range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace examples {

struct Option {
  std::string name;  // "--memory"
  double* value;     // holds the default
  double least, most;
  std::string help;  // "MiB of model on each GPU"
};

// Sets the options' values. Prints help and exits 0 for --help; exits 2 with a sentence for what it does not
// understand.
void parse_options(int argument_count, char** arguments, const std::string& purpose,
                   const std::vector<Option>& options);

// From now on SIGTERM and SIGINT are noted instead of ending the process.
void note_termination();
bool termination_noted();

// Runs `body`; a Problem is printed as a sentence with the program's name and gives exit code 1.
int run_example(const char* program, int (*body)(int, char**), int argument_count, char** arguments);

}  // namespace examples
