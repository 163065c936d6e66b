// From method and path to an entry of a constant table.
//
//   constexpr HttpRoute<Action> kRoutes[] = {{"GET", "/v1/jobs/{id}", &Api::show_job}, ...};
//   const auto match = match_route(std::span(kRoutes), request.method, request.path);
//
// A linear scan: some tens of patterns, compared segment by segment.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tranche {

inline constexpr size_t kRouteParametersMax = 4;

// The values of the {name}s of a pattern, in order; views of the path.
struct RouteParameters {
  std::array<std::string_view, kRouteParametersMax> values;
  size_t count = 0;

  std::string_view operator[](size_t index) const { return values[index]; }
};

// Whether `path` is of the form `pattern`; a {name} stands for one segment that is not empty.
bool match_pattern(std::string_view pattern, std::string_view path, RouteParameters* parameters);

template <class Action>
struct HttpRoute {
  std::string_view method;
  std::string_view pattern;
  Action action;
};

template <class Action>
struct RouteMatch {
  const HttpRoute<Action>* route = nullptr;  // null: see allowed_methods
  RouteParameters parameters;
  std::string allowed_methods;  // "GET, POST" when the path exists with other methods (405), else empty (404)
};

template <class Action, size_t kCount>
RouteMatch<Action> match_route(std::span<const HttpRoute<Action>, kCount> routes, std::string_view method,
                               std::string_view path) {
  RouteMatch<Action> match;
  for (const HttpRoute<Action>& route : routes) {
    RouteParameters parameters;
    if (!match_pattern(route.pattern, path, &parameters)) continue;
    // HEAD is answered as GET; the server leaves the body out.
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      match.route = &route;
      match.parameters = parameters;
      return match;
    }
    if (!match.allowed_methods.empty()) match.allowed_methods += ", ";
    match.allowed_methods += route.method;
  }
  return match;
}

}  // namespace tranche
