// api/openapi.yaml against the router, both ways: every route is documented, and every documented one is served.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <set>

#include "machine/api_server.h"

namespace tranche::machine {
namespace {

std::set<std::string> documented_routes() {
  std::set<std::string> routes;
  std::ifstream document(TRANCHE_SOURCE_DIR "/api/openapi.yaml");
  std::string path;
  bool in_paths = false;
  for (std::string line; std::getline(document, line);) {
    const size_t indent = line.find_first_not_of(' ');
    if (indent == 0) in_paths = line == "paths:";
    if (!in_paths || indent == std::string::npos) continue;
    if (indent == 2) path = line.substr(2, line.rfind(':') - 2);
    if (indent != 4 || !line.ends_with(':')) continue;
    std::string method = line.substr(4, line.size() - 5);
    for (char& c : method) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (method != "PARAMETERS") routes.insert(method + " " + path);
  }
  return routes;
}

TEST(ApiRoutes, AreThoseOfTheDocument) {
  std::set<std::string> served;
  for (const auto& route : ApiServer::routes()) {
    const bool is_new = served.insert(std::string(route.method) + " " + std::string(route.pattern)).second;
    EXPECT_TRUE(is_new) << route.method << " " << route.pattern << " is there twice";
  }
  EXPECT_GT(served.size(), 20u);
  EXPECT_EQ(documented_routes(), served);
}

}  // namespace
}  // namespace tranche::machine
