// One run of the program: where its text goes, who runs it, which daemon it speaks to. Tests make one with
// pipes and a socket of their own; nothing else in this room touches global state.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace tranche::cli {

inline constexpr std::string_view kDefaultSocket = "/run/tranche/tranche.sock";

// How text may look where it goes.
struct Look {
  bool colour = false;
  size_t width = 0;  // cells of a line; 0: not a terminal, lines are as long as they are
};

class Session {
 public:
  struct Setup {
    int input = 0;
    int output = 1;
    int error = 2;
    std::vector<std::string> environment;  // "NAME=value"
    std::string directory;                 // working directory
    uid_t uid = 0;
    std::string user;  // "" is looked up when needed
    Look look;
    Time now;  // wall clock at start, for elapsed times
    bool error_is_terminal = false;
  };

  explicit Session(Setup setup);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Of this process.
  static Setup current();

  // Buffered; flush() before waiting for anything.
  void print(std::string_view text);
  // --json: what the daemon sent, made safe for a terminal, and a newline.
  void print_json(std::string_view document);
  void flush();
  // Why what was printed did not arrive, if it did not: a full disk, a closed output. Nothing is written
  // after that.
  const std::optional<Error>& output_lost() const { return output_lost_; }
  // To stderr: "tranche: <sentence>" and a newline.
  void warn(std::string_view sentence);
  // To stderr, as it is; nothing when quiet.
  void note(std::string_view text);

  const Setup& setup() const { return setup_; }
  const Look& look() const { return setup_.look; }
  // A variable of the environment, or "".
  std::string variable(std::string_view name) const;

  // The caller's login name. Lists are highlighted by uid; this costs a name service's start.
  std::string user() const;

  std::string socket_path;  // as named by who calls; "": which_daemon.h finds it
  bool quiet = false;

 private:
  Setup setup_;
  std::string pending_;
  std::optional<Error> output_lost_;
};

}  // namespace tranche::cli
