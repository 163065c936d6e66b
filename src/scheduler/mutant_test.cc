// Schedulers that are broken on purpose (mutants.txt) are caught, each by the property that it names: a
// property that catches nothing says nothing. The scheduler here is a build of its own with all mutants in
// it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "scheduler/property.h"

namespace tranche::scheduler {
namespace {

int active_mutant = 0;

}  // namespace

bool is_mutant(int number) { return number == active_mutant; }

namespace test {
namespace {

struct Mutant {
  int number;
  const char* property;
  const char* what;
  const char* stale;  // why it is not in the build; "": it is
};

const Mutant kMutants[] = {
#include "mutants.inc"
};

// Of every history a few properties are held together.
const Property& property_that_catches(const Mutant& mutant) {
  const Property* const own = find_property(mutant.property);
  return own != nullptr ? *own : *find_property("histories");
}

// The seed of the first history that shows it; 0: none of `histories`. In a process of its own, which an
// assertion of the scheduler may end: that is no finding of the property.
uint64_t caught_by(const Mutant& mutant, uint64_t histories) {
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    active_mutant = mutant.number;
    uint64_t caught = 0;
    Counts counts;
    for (uint64_t seed = 1; seed <= histories && caught == 0; ++seed) {
      Played played{seed};
      const auto finding = property_that_catches(mutant).play(played, counts);
      if (finding && (mutant.number == 0 || finding->property == mutant.property)) caught = seed;
    }
    const ssize_t written = ::write(ends[1], &caught, sizeof caught);
    ::_exit(written == sizeof caught ? 0 : 1);
  }
  ::close(ends[1]);
  uint64_t caught = 0;
  const bool told = ::read(ends[0], &caught, sizeof caught) == sizeof caught;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(told)
      << "an assertion of the scheduler came before the property; make the mutant one that it does not see";
  return caught;
}

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.property << ": " << mutant.what; }

class Mutants : public ::testing::TestWithParam<Mutant> {};

TEST_P(Mutants, IsCaught) {
  const Mutant& mutant = GetParam();
  ASSERT_STREQ(mutant.stale, "") << "mutants.txt has to follow the source";
  const uint64_t seed = caught_by(mutant, 400);
  EXPECT_NE(seed, 0u) << mutant.property << " does not see that " << mutant.what;
  std::printf("%s: %s: caught by history %llu\n", mutant.property, mutant.what,
              static_cast<unsigned long long>(seed));
}

std::string name_of(const ::testing::TestParamInfo<Mutant>& mutant) {
  return std::string(mutant.param.property) + "_" + std::to_string(mutant.param.number);
}

INSTANTIATE_TEST_SUITE_P(Each, Mutants, ::testing::ValuesIn(kMutants), name_of);

// The same build with no mutant chosen is the scheduler.
TEST(MutantBuild, WithoutAnyNothingIsFound) {
  for (const Property& property : properties()) {
    if (property.name == std::string("P21")) continue;
    const Mutant none{0, property.name, "nothing", ""};
    EXPECT_EQ(caught_by(none, 10), 0u) << property.name;
  }
}

// This build is not optimised, the program's is.
TEST(MutantBuild, StatesAreThoseOfTheOptimisedBuild) {
  constexpr uint64_t kHistories = 40;
  Counts counts;
  for (uint64_t seed = 1; seed <= kHistories; ++seed) {
    Played played{seed};
    ASSERT_FALSE(audit_history(played, counts)) << seed;
  }
  const std::string command =
      std::string(TRANCHE_HISTORIES) + " --sum-only --count " + std::to_string(kHistories);
  FILE* const other = ::popen(command.c_str(), "r");
  ASSERT_NE(other, nullptr);
  unsigned long long sum = 0;
  EXPECT_EQ(std::fscanf(other, "%llu", &sum), 1);
  ::pclose(other);
  EXPECT_EQ(sum, counts.of("sum of the states' hashes"));
}

}  // namespace
}  // namespace test
}  // namespace tranche::scheduler
