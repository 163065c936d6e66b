// tranche top: the server as it is now, again every second on a terminal.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/interactive_session.h"
#include "cli/job_list.h"
#include "cli/option_error.h"
#include "cli/raw_terminal.h"
#include "cli/session.h"
#include "cli/top_page.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

constexpr size_t kJobsShown = 500;

Time now_by_wall() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Time(int64_t{now.tv_sec} * kSecond.count() + now.tv_nsec);
}

Result<TopState> fetch(Daemon& daemon) {
  TopState state;
  TRY_ASSIGN(state.status, daemon.get_as<api::StatusReport>("/v1/status"));
  TRY_ASSIGN(state.gpus, daemon.get_as<api::GpuList>("/v1/gpus"));
  TRY_ASSIGN(FetchedJobs fetched,
             fetch_jobs(daemon, "/v1/jobs?limit=" + std::to_string(kJobsShown), kJobsShown));
  state.jobs = std::move(fetched.list.jobs);
  state.now = now_by_wall();
  return state;
}

// The other screen of the terminal, without a cursor, while the page is shown; keys are read one by one.
class Screen {
 public:
  explicit Screen(Session& session) : session_(session), terminal_(session.setup().input) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &before_);
    signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    terminal_.enter();
    session_.print("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    session_.print("\x1b[?25h\x1b[?1049l");
    session_.flush();
    terminal_.leave();
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Line by line over what was there, so that nothing flickers.
  void show(const std::string& page) {
    std::string out = "\x1b[H";
    for (const char c : page) out += c == '\n' ? std::string("\x1b[K\r\n") : std::string(1, c);
    if (out.ends_with("\r\n"))
      out.resize(out.size() - 2);  // the last line must not scroll the first one away
    session_.print(out + "\x1b[J");
    session_.flush();
  }

  enum class Next : unsigned char { kAgain, kEnd };
  // Until `milliseconds` have passed, the window has another size, or somebody wants to leave.
  Next wait(int milliseconds) {
    pollfd waiting[] = {{session_.setup().input, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    if (poll(waiting, 2, milliseconds) <= 0) return Next::kAgain;
    if (waiting[1].revents != 0) {
      signalfd_siginfo info{};
      const bool got = read(signals_.get(), &info, sizeof info) == sizeof info;
      return got && info.ssi_signo != SIGWINCH ? Next::kEnd : Next::kAgain;
    }
    char key = 'q';
    constexpr char kControlC = 3;
    const bool hung_up = read(session_.setup().input, &key, 1) <= 0;
    return hung_up || key == 'q' || key == 'Q' || key == kControlC ? Next::kEnd : Next::kAgain;
  }

 private:
  Session& session_;
  RawTerminal terminal_;
  UniqueFd signals_;
  sigset_t before_{};
};

Result<int> show_live(Session& session, Daemon& daemon, int milliseconds) {
  TRY_ASSIGN(TopState state, fetch(daemon));  // what fails at once fails as a line, not on another screen
  Screen screen(session);
  do {
    const WindowSize size = window_size(session.setup().output);
    Look look = session.look();
    look.width = size.columns;
    Result<TopState> fresh = fetch(daemon);
    std::string page = top_page(fresh ? *fresh : state, look, session.setup().uid, size.rows);
    if (fresh) {
      state = std::move(*fresh);
    } else {
      // The daemon may be back in a moment; until then what is known stays.
      page = fit_width(fresh.error().message(), size.columns) + "\n" + page.substr(page.find('\n') + 1);
    }
    screen.show(page);
    if (session.output_lost()) break;
  } while (screen.wait(milliseconds) == Screen::Next::kAgain);
  return 0;
}

}  // namespace

Result<int> run_top(Session& session, const Arguments& arguments) {
  Duration every = kSecond;
  if (const std::string* value = arguments.find("interval")) {
    const bool bare = value->find_first_not_of("0123456789") == std::string::npos;
    TRY_OPTION(every, "--interval", parse_duration(bare ? *value + "s" : *value));
    if (every < kSecond || every > kHour) return invalid("--interval: write 1s to 1h");
  }
  Daemon daemon(session);
  if (can_show_terminal(session) && !arguments.has("once")) {
    return show_live(session, daemon, static_cast<int>(every.count() / kMillisecond.count()));
  }
  TRY_ASSIGN(const TopState state, fetch(daemon));
  session.print(top_page(state, session.look(), session.setup().uid, 0));
  return 0;
}

}  // namespace tranche::cli
