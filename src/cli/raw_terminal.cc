#include "cli/raw_terminal.h"

#include <sys/ioctl.h>

namespace tranche::cli {

void RawTerminal::enter() {
  if (raw_ || tcgetattr(terminal_, &saved_) != 0) return;
  termios raw = saved_;
  cfmakeraw(&raw);
  raw_ = tcsetattr(terminal_, TCSADRAIN, &raw) == 0;
}

void RawTerminal::leave() {
  if (!raw_) return;
  // TCSAFLUSH would drop what was typed ahead for the shell.
  tcsetattr(terminal_, TCSADRAIN, &saved_);
  raw_ = false;
}

WindowSize window_size(int terminal) {
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_row, size.ws_col};
}

}  // namespace tranche::cli
