// The caller's terminal in raw mode while a job's terminal is shown in it, and back on every way out.
#pragma once

#include <termios.h>

#include <cstdint>

namespace tranche::cli {

class RawTerminal {
 public:
  // `terminal` is borrowed. Does nothing until enter().
  explicit RawTerminal(int terminal) : terminal_(terminal) {}
  ~RawTerminal() { leave(); }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  void enter();
  void leave();

 private:
  int terminal_;
  bool raw_ = false;
  termios saved_{};
};

struct WindowSize {
  uint16_t rows = 0;
  uint16_t columns = 0;
};
WindowSize window_size(int terminal);

}  // namespace tranche::cli
