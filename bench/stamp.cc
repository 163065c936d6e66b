// A job that says when it began: CLOCK_MONOTONIC in nanoseconds, on standard output. The clock is read before
// anything else; statically linked, so that nothing of note comes before main either.
#include <time.h>
#include <unistd.h>

#include <cstdio>

int main() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  char text[32];
  const int length = std::snprintf(text, sizeof text, "%lld\n",
                                   static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  return write(STDOUT_FILENO, text, static_cast<size_t>(length)) == length ? 0 : 1;
}
