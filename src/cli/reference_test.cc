#include "cli/reference.h"

#include <gtest/gtest.h>

#include "linux/files.h"

namespace tranche::cli {
namespace {

TEST(Reference, DocsCliIsTheTable) {
  const Result<std::string> page = read_file(TRANCHE_SOURCE_DIR "/docs/cli.md", 1 << 20);
  ASSERT_TRUE(page.has_value()) << page.error().message();
  EXPECT_EQ(*page, markdown_reference()) << "run: tranche help --markdown > docs/cli.md";
}

TEST(Reference, PagesFitTheTerminal) {
  for (const Verb& verb : verbs()) {
    const std::string page = verb_page(Look{.width = 80}, verb);
    EXPECT_NE(page.find("Examples"), std::string::npos);
    for (const Example& example : verb.examples) EXPECT_NE(page.find(example.line), std::string::npos);
  }
}

TEST(Reference, OverviewNamesEveryVerb) {
  const std::string page = overview_page(Look{});
  for (const Verb& verb : verbs())
    EXPECT_NE(page.find("  " + std::string(verb.name) + " "), std::string::npos);
}

}  // namespace
}  // namespace tranche::cli
