// Tests' handle on the fake NVML library: where its generations are, and its control file.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tranche {

inline std::string fake_nvml_directory(const std::string& generation) {
  return std::string(FAKE_NVML_DIRECTORY) + "/" + generation;
}

// The control file of one test; the sampler inherits its name through the environment.
class FakeDriver {
 public:
  FakeDriver() {
    char name[] = "/tmp/fake-nvml-XXXXXX";
    const int file = ::mkstemp(name);
    if (file >= 0) ::close(file);
    path_ = name;
    ::setenv("FAKE_NVML_CONTROL", name, 1);
  }
  ~FakeDriver() {
    ::unsetenv("FAKE_NVML_CONTROL");
    ::unlink(path_.c_str());
  }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // Makes a file with that text.
  static void touch(const std::string& path, const std::string& text = "") {
    std::ofstream(path) << text << std::flush;
  }

  // Replaces all lines at once.
  void set(const std::string& lines) {
    const std::string next = path_ + ".next";
    std::ofstream(next) << lines << std::flush;
    std::rename(next.c_str(), path_.c_str());
  }

 private:
  std::string path_;
};

}  // namespace tranche
