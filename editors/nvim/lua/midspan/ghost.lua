--- What draws the ghost text: Neovim 0.12's own inline completion, or ours with the same functions where there is none.
---@class midspan.Ghost
---@field enable fun(enable: boolean, filter: { bufnr: integer })
---@field is_enabled fun(filter: { bufnr: integer, client_id: integer }): boolean
---@field get fun(opts: { bufnr: integer, on_accept: fun(item: table): table? }): boolean
---@field select fun(opts: { bufnr: integer, count: integer })
return vim.lsp.inline_completion or require("midspan.own_ghost")
