// api/openapi.yaml against the code: the same schemas, fields, required fields and enumerations, and every
// example is exactly what the code writes. The document is read by its layout: schemas stand at 4 spaces,
// their keys at 6, properties at 8, one a line.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "codec/api_fields.h"
#include "codec/event_json.h"
#include "codec/test_files.h"

namespace tranche::api {
namespace {

struct DocumentedSchema {
  std::set<std::string> properties;
  std::set<std::string> required;
  std::vector<std::string> values;  // of an enumeration
  std::string example;
};

size_t indent_of(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

std::vector<std::string> split_list(const std::string& line) {
  std::vector<std::string> names;
  std::istringstream list(line.substr(line.find('[') + 1, line.rfind(']') - line.find('[') - 1));
  for (std::string name; std::getline(list, name, ',');) names.push_back(name.substr(indent_of(name)));
  return names;
}

std::map<std::string, DocumentedSchema> documented_schemas() {
  std::map<std::string, DocumentedSchema> schemas;
  std::istringstream lines(read_source_file("api/openapi.yaml"));
  bool in_schemas = false;
  bool in_properties = false;
  DocumentedSchema* schema = nullptr;
  for (std::string line; std::getline(lines, line);) {
    const size_t indent = indent_of(line);
    const std::string key = line.substr(indent, line.find(':') - indent);
    if (line == "  schemas:") in_schemas = true;
    if (!in_schemas) continue;
    if (indent == 4) schema = &schemas[key];
    if (indent == 6) in_properties = key == "properties";
    if (indent == 6 && key == "required") {
      const auto names = split_list(line);
      schema->required.insert(names.begin(), names.end());
    }
    if (indent == 6 && key == "enum") schema->values = split_list(line);
    if (indent == 6 && key == "example") schema->example = line.substr(line.find('{'));
    if (indent == 8 && in_properties) schema->properties.insert(key);
  }
  return schemas;
}

TEST(OpenApi, SchemasHaveExactlyTheFieldsOfTheCode) {
  const auto documented = documented_schemas();
  std::set<std::string> seen;
  for (const SchemaFields& schema : schema_fields()) {
    SCOPED_TRACE(schema.schema);
    seen.insert(schema.schema);
    const auto found = documented.find(schema.schema);
    ASSERT_NE(found, documented.end());
    std::set<std::string> names;
    std::set<std::string> required;
    for (const FieldName& field : schema.fields) {
      names.insert(field.name);
      if (field.required) required.insert(field.name);
    }
    EXPECT_EQ(found->second.properties, names);
    EXPECT_EQ(found->second.required, required);
  }
  seen.insert({"EventRow", "EventPage"});  // checked by their examples
  for (const auto& [name, schema] : documented) {
    const bool is_known = schema.properties.empty() || seen.contains(name);
    EXPECT_TRUE(is_known) << name << " is not known to the code";
  }
}

template <class Type>
void expect_canonical(const std::map<std::string, DocumentedSchema>& documented, const char* name) {
  SCOPED_TRACE(name);
  const std::string& example = documented.at(name).example;
  const auto decoded = json::decode_text<Type>(example, ErrorCode::invalid_argument, json::Strictness{});
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message() << "\n" << example;
  std::string written;
  json::Encoder(written, TimeSpelling::rfc3339).put(*decoded, json::kPlain);
  EXPECT_EQ(written, example);
}

TEST(OpenApi, ExamplesAreWhatTheCodeWrites) {
  const auto documented = documented_schemas();
#define TRANCHE_EXAMPLE(Type) expect_canonical<Type>(documented, #Type);
  TRANCHE_API_REQUESTS(TRANCHE_EXAMPLE)
  TRANCHE_API_ANSWERS(TRANCHE_EXAMPLE)
  TRANCHE_API_REQUEST_PARTS(TRANCHE_EXAMPLE)
  TRANCHE_API_ANSWER_PARTS(TRANCHE_EXAMPLE)
#undef TRANCHE_EXAMPLE
  const std::string& row_example = documented.at("EventRow").example;
  const auto row = decode_row(row_example);
  ASSERT_TRUE(row.has_value()) << row.error().message();
  EXPECT_EQ(encode_row(row->event, row->decisions, TimeSpelling::rfc3339), row_example);
  EXPECT_TRUE(decode_event_page(documented.at("EventPage").example).has_value());
}

template <class Enum>
void expect_values(const std::map<std::string, DocumentedSchema>& documented, const char* name) {
  SCOPED_TRACE(name);
  const auto texts = json::detail::enum_texts<Enum>();
  EXPECT_EQ(documented.at(name).values, std::vector<std::string>(texts.begin(), texts.end()));
}

TEST(OpenApi, EnumerationsHaveTheValuesOfTheModel) {
  const auto documented = documented_schemas();
  expect_values<JobState>(documented, "JobState");
  expect_values<JobClass>(documented, "JobClass");
  expect_values<SliceKind>(documented, "SliceKind");
  expect_values<GpuTopology>(documented, "GpuTopology");
  expect_values<DependencyKind>(documented, "DependencyKind");
  expect_values<ExitCause>(documented, "ExitCause");
  expect_values<ProofKind>(documented, "ProofKind");
  expect_values<Health>(documented, "Health");
  expect_values<Tier>(documented, "Tier");
  expect_values<NoticeKind>(documented, "NoticeKind");
  expect_values<TokenScope>(documented, "TokenScope");
  expect_values<CheckStatus>(documented, "CheckStatus");
  std::vector<std::string> codes;
#define TRANCHE_CODE(code, status, exit_code) codes.emplace_back(#code);
  TRANCHE_ERROR_CODES(TRANCHE_CODE)
#undef TRANCHE_CODE
  EXPECT_EQ(documented.at("ErrorCode").values, codes);
}

TEST(OpenApi, EveryReferenceHasItsTarget) {
  const std::string text = read_source_file("api/openapi.yaml");
  const auto documented = documented_schemas();
  constexpr std::string_view kPrefix = "'#/components/schemas/";
  size_t references = 0;
  for (size_t at = text.find(kPrefix); at != std::string::npos; at = text.find(kPrefix, at + 1)) {
    const size_t begin = at + kPrefix.size();
    const std::string name = text.substr(begin, text.find('\'', begin) - begin);
    EXPECT_TRUE(documented.contains(name)) << name;
    ++references;
  }
  EXPECT_GT(references, 100u);
}

}  // namespace
}  // namespace tranche::api
