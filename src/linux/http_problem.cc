#include "base/json_writer.h"
#include "linux/http_server.h"

namespace tranche {
namespace {

// RFC 9110, 15: for the statuses that this product answers with.
std::string_view title_of(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 507:
      return "Insufficient Storage";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

HttpResponse problem_response(int status, std::string_view type, std::string_view detail) {
  HttpResponse response;
  response.status = status;
  response.content_type = "application/problem+json";
  JsonWriter json(response.body);
  json.begin_object().field("type", type).field("title", title_of(status)).field("status", status);
  json.field("detail", detail).end_object();
  response.body += '\n';
  return response;
}

HttpResponse problem_response(const Error& error) {
  return problem_response(http_status(error.code()), to_string(error.code()), error.message());
}

}  // namespace tranche
