// The table of verbs as pages for people: --help in a terminal, and docs/cli.md.
#pragma once

#include <string>

#include "cli/session.h"
#include "cli/verbs.h"

namespace tranche::cli {

// The list of verbs.
std::string overview_page(const Look& look);
// One verb: usage, options, examples.
std::string verb_page(const Look& look, const Verb& verb);
// All of it as Markdown: exactly the text of docs/cli.md, which a test holds against this.
std::string markdown_reference();

}  // namespace tranche::cli
