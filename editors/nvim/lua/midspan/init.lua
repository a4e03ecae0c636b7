--- What keys and users call. Nothing needs to be set up: `vim.lsp.enable("midspan")` starts everything.
local ghost = require("midspan.ghost")
local guard = require("midspan.guard")
local report = require("midspan.report")
local suggestion = require("midspan.suggestion")
local switch = require("midspan.switch")

local M = {}

--- Sets the option that it already has: Neovim's documented way to begin a new undo step.
local function break_undo()
  vim.bo.undolevels = vim.bo.undolevels
end

---@param bufnr integer
---@param chosen midspan.Suggestion valid at `now`
---@param now midspan.Place
---@param piece string the part of its text to insert
local function insert(bufnr, chosen, now, piece)
  local rest = chosen.text:sub(#piece + 1)
  local covered = rest == "" and chosen.covered or 0
  local lines = vim.split(piece, "\n", { plain = true })
  break_undo()
  vim.api.nvim_buf_set_text(bufnr, now.row, now.col, now.row, now.col + covered, lines)
  local col = (#lines == 1 and now.col or 0) + #lines[#lines]
  vim.api.nvim_win_set_cursor(0, { now.row + #lines, col })
  break_undo()
  local left = { text = rest, start = col, covered = chosen.covered, command = chosen.command }
  guard.show(bufnr, rest ~= "" and { left } or {})
end

--- Accepts a part of the shown suggestion.
---@param part fun(text: string): string
---@return boolean accepted false when nothing is shown that fits what was typed
local function accept(part)
  local bufnr = vim.api.nvim_get_current_buf()
  if #guard.at_cursor(bufnr) == 0 then
    return false
  end
  -- `get` waits until the text may be changed, so that this works in an <expr> map; by then more may have been typed.
  return ghost.get({
    bufnr = bufnr,
    on_accept = function(item)
      local candidates, now = guard.at_cursor(bufnr)
      for _, each in ipairs(candidates) do
        if now and vim.endswith(item.insert_text, each.text) then
          local piece = part(each.text)
          insert(bufnr, each, now, piece)
          local client = vim.lsp.get_client_by_id(item.client_id)
          if client then
            report.accepted(client, each, piece, bufnr)
          end
          return nil
        end
      end
      return nil
    end,
  })
end

--- Accepts the shown suggestion. The returned boolean lets a key fall back on something else; see |midspan-keys|.
---@return boolean accepted
function M.accept()
  return accept(function(text)
    return text
  end)
end

--- Accepts the next word of the shown suggestion; the rest stays shown.
---@return boolean accepted
function M.accept_word()
  return accept(suggestion.first_word)
end

--- Accepts the next line of the shown suggestion; the rest stays shown.
---@return boolean accepted
function M.accept_line()
  return accept(suggestion.first_line)
end

--- Shows the next suggestion; with a single one known, asks the server for alternatives.
function M.next()
  guard.cycle(vim.api.nvim_get_current_buf(), 1)
end

--- Shows the previous suggestion; with a single one known, asks the server for alternatives.
function M.prev()
  guard.cycle(vim.api.nvim_get_current_buf(), -1)
end

--- Hides the suggestion until the text changes again.
function M.dismiss()
  guard.dismiss(vim.api.nvim_get_current_buf())
end

--- Switches suggestions on or off. Switched off, nothing is asked of the server.
---@param bufnr? integer 0 for the current buffer; everywhere when absent
function M.toggle(bufnr)
  guard.dismiss(vim.api.nvim_get_current_buf())
  vim.notify("Midspan: " .. switch.toggle(bufnr))
end

return M
