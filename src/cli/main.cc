// tranche: the command line of Tranche.
#include <string>
#include <vector>

#include "cli/program.h"
#include "cli/session.h"

int main(int count, char** words) {
  tranche::cli::Session session(tranche::cli::Session::current());
  return tranche::cli::run_program(session,
                                   std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count));
}
