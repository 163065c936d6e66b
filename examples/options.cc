#include "options.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_driver.h"

namespace examples {
namespace {

volatile sig_atomic_t termination = 0;

[[noreturn]] void refuse(const std::string& sentence) {
  std::fprintf(stderr, "%s; see --help\n", sentence.c_str());
  std::exit(2);
}

[[noreturn]] void help(const char* program, const std::string& purpose, const std::vector<Option>& options) {
  const char* const slash = std::strrchr(program, '/');
  std::printf("Usage: %s [options]\n%s\n\n", slash != nullptr ? slash + 1 : program, purpose.c_str());
  for (const Option& option : options) {
    std::printf("  %-14s %s (%g)\n", option.name.c_str(), option.help.c_str(), *option.value);
  }
  std::exit(0);
}

void set(const Option& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  // Written so that "nan" is refused too.
  const bool valid = !text.empty() && *end == '\0' && value >= option.least && value <= option.most;
  if (!valid) {
    char range[96];
    std::snprintf(range, sizeof range, " takes a number from %g to %g, not \"", option.least, option.most);
    refuse(option.name + range + text + "\"");
  }
  *option.value = value;
}

}  // namespace

void parse_options(int argument_count, char** arguments, const std::string& purpose,
                   const std::vector<Option>& options) {
  for (int i = 1; i < argument_count; ++i) {
    std::string name = arguments[i];
    if (name == "--help" || name == "-h") help(arguments[0], purpose, options);
    const size_t equals = name.find('=');
    const bool joined = equals != std::string::npos;
    const std::string text = joined                   ? name.substr(equals + 1)
                             : i + 1 < argument_count ? arguments[i + 1]
                                                      : "";
    if (joined) name.resize(equals);
    const Option* chosen = nullptr;
    for (const Option& option : options) {
      if (option.name == name) chosen = &option;
    }
    if (chosen == nullptr) refuse("there is no option " + name);
    if (!joined && ++i >= argument_count) refuse(name + " needs a value");
    set(*chosen, text);
  }
}

void note_termination() {
  struct sigaction action = {};
  action.sa_handler = [](int) { termination = 1; };  // no SA_RESTART: a wait for input ends
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool termination_noted() { return termination != 0; }

int run_example(const char* program, int (*body)(int, char**), int argument_count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a log that is followed shows whole lines at once
  try {
    return body(argument_count, arguments);
  } catch (const Problem& problem) {
    std::fprintf(stderr, "%s: %s\n", program, problem.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
  }
  return 1;
}

}  // namespace examples
