--- The command `:Midspan`.
local M = {}

---@return vim.lsp.Client[]
local function clients()
  return vim.lsp.get_clients({ name = "midspan" })
end

local STATUS_TIMEOUT_MS = 1000

local function status()
  local report = require("midspan.status")
  local lines = {}
  if not require("midspan.guard").is_enabled() then
    lines[#lines + 1] = "Midspan: suggestions are off (:Midspan toggle switches them on)"
  end
  for _, client in ipairs(clients()) do
    local _, problem = report.ask(client, STATUS_TIMEOUT_MS)
    local note = problem and (" (%s)"):format(problem) or ""
    lines[#lines + 1] = ("Midspan: %s%s"):format(report.describe(client), note)
  end
  if #clients() == 0 then
    lines[#lines + 1] = "Midspan: no language server is attached; :checkhealth midspan says why"
  end
  vim.notify(table.concat(lines, "\n"))
end

--- Starts the server again once the old one has gone, by force if it does not go.
local function restart()
  local GRACE_MS, POLL_MS = 3000, 50
  if not vim.lsp.enable then
    vim.notify("Midspan: restarting needs Neovim 0.11 or newer", vim.log.levels.ERROR)
    return
  end
  vim.lsp.enable("midspan", false)
  local deadline = vim.uv.now() + GRACE_MS
  local function start_when_gone()
    local running = clients()
    if #running == 0 then
      vim.lsp.enable("midspan")
      vim.notify("Midspan: language server restarted")
      return
    end
    if vim.uv.now() > deadline then
      for _, client in ipairs(running) do
        client:stop(true)
      end
    end
    vim.defer_fn(start_when_gone, POLL_MS)
  end
  start_when_gone()
end

---@type table<string, fun()>
local actions = {
  status = status,
  toggle = function()
    require("midspan").toggle()
  end,
  restart = restart,
}

--- Runs `:Midspan [action]`; without an action it prints the status.
---@param arguments string[]
function M.run(arguments)
  local name = arguments[1] or "status"
  local action = actions[name]
  if not action then
    vim.notify(("Midspan: no action %q; use status, toggle or restart"):format(name), vim.log.levels.ERROR)
    return
  end
  action()
end

--- Completes the action.
---@param lead string
---@return string[]
function M.complete(lead)
  return vim.tbl_filter(function(name)
    return vim.startswith(name, lead)
  end, { "restart", "status", "toggle" })
end

return M
